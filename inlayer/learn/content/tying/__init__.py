"""Lesson 7: Weight tying."""
