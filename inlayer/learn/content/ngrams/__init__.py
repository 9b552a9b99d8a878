"""Lesson 10: n-gram memories."""
