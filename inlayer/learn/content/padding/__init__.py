"""Lesson 5: Padding, masks, and pooling."""
