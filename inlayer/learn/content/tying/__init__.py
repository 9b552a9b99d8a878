"""Lesson 7: tying."""
