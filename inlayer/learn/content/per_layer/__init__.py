"""Lesson 11: per-layer embeddings."""
