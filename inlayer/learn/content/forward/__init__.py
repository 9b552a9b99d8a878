"""Lesson 3: The forward pass."""
