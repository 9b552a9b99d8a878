"""Lesson 4: Positions: encoding the order of tokens."""
