"""Lesson 1: From text to ids."""
