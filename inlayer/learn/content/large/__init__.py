"""Lesson 8: very large vocabularies."""
