"""The course: lessons, graded tasks, exercises, and quizzes. See docs/learn.md."""

from inlayer.learn.course import Course, Lesson, Task, open_course
from inlayer.learn.questions import Question

__all__ = ["Course", "Lesson", "Question", "Task", "open_course"]
