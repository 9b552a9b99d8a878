"""Lesson 5: texts of different lengths in one batch, and one vector a text."""
