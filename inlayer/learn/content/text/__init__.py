"""Lesson 1: from text to ids."""
