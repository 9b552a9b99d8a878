"""Lesson 2: The embedding table and its initialization."""
