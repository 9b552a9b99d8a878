"""Lesson 3: the forward pass."""
