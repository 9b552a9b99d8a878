"""Lesson 4: how the order of the tokens enters, or does not."""
