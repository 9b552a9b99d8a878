"""Checkpoints: find the embedding layer in a model's files, open it without loading or trusting the rest, diagnose it."""
