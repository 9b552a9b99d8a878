"""The course as data: a folder for each lesson, and in it one for each task. Read by inlayer/learn/course.py."""

__all__ = ["LESSONS"]

LESSONS = ("text", "table", "forward", "position", "padding", "learning", "tying", "large", "checkpoints")
