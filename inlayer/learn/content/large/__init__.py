"""Lesson 8: Very large vocabularies."""
