"""Lesson 6: How embeddings are trained."""
