"""Lesson 2: what a table is and how it is born."""
