"""The course as data: one folder per lesson and, inside it, one per task. Loaded by inlayer/learn/course.py."""

__all__ = ["LESSONS"]

LESSONS = (
    "text", "table", "forward", "position", "padding", "learning", "tying", "large", "checkpoints", "ngrams",
    "per_layer",
)  # fmt: skip
