"""Lesson 9: real checkpoints."""
