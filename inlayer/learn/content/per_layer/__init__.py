"""Lesson 10: per-layer embeddings."""
