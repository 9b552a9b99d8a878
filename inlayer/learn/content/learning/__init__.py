"""Lesson 6: how rows learn."""
