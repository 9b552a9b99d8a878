"""Lesson 9: Real checkpoints."""
