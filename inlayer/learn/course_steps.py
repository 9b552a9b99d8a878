"""The path through the course: the steps of each lesson, what is done, and what is next.

course, progress -> [steps] -> service
Tested in tests/learn/test_service.py and tests/learn/test_progress.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from inlayer.learn.course import Course, Lesson, Question, Task
from inlayer.learn.progress import ExerciseRecord, ProgressState, QuestionRecord, TaskRecord
from inlayer.learn.questions import Exercise

__all__ = ["CourseOverview", "CourseStep", "LessonStatus", "find_next_step", "lesson_steps"]

StepKind = Literal["read", "task", "exercise", "quiz"]


@dataclass(frozen=True, kw_only=True)
class CourseStep:
    """One thing to do: read a lesson, solve a task, answer an exercise, take a quiz."""

    kind: StepKind
    id: str
    lesson: Lesson

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}"

    @property
    def command(self) -> str:
        return f"inlayer learn {'check' if self.kind == 'task' else self.kind} {self.id}"

    @property
    def title(self) -> str:
        """The step in words: "the task gather, Gather the rows yourself"."""
        if self.kind in {"task", "exercise"}:
            parts: tuple[Task | Exercise, ...] = (*self.lesson.tasks, *self.lesson.exercises)
            return f"the {self.kind} {self.id}, {next(one.title for one in parts if one.id == self.id)}"
        return f"{'read' if self.kind == 'read' else 'the quiz of'} lesson {self.lesson.number}, {self.lesson.title}"

    def is_done(self, state: ProgressState) -> bool:
        if self.kind == "read":
            return self.id in state.read
        if self.kind == "task":
            return bool(state.tasks.get(self.id, TaskRecord()).passed)
        if self.kind == "exercise":
            return bool(state.exercises.get(self.id, ExerciseRecord()).done)
        return all(state.questions.get(one.id, QuestionRecord()).right for one in self.lesson.questions)


def lesson_steps(lesson: Lesson) -> Iterator[CourseStep]:
    """The steps of a lesson in order: the text, its tasks, its exercises, its quiz."""
    yield CourseStep(kind="read", id=lesson.id, lesson=lesson)
    for task in lesson.tasks:
        yield CourseStep(kind="task", id=task.id, lesson=lesson)
    for exercise in lesson.exercises:
        yield CourseStep(kind="exercise", id=exercise.id, lesson=lesson)
    yield CourseStep(kind="quiz", id=lesson.id, lesson=lesson)


def find_next_step(course: Course, state: ProgressState) -> CourseStep | None:
    """The first step that is neither done nor skipped; then the first skipped one; None when the course is done."""
    left = [step for lesson in course.lessons for step in lesson_steps(lesson) if not step.is_done(state)]
    return next((step for step in left if step.key not in state.skipped), left[0] if left else None)


@dataclass(frozen=True, kw_only=True)
class LessonStatus:
    """Progress on a lesson; the tuples are in the order of the lesson."""

    lesson: Lesson
    read: bool
    tasks: tuple[TaskRecord, ...]
    exercises: tuple[ExerciseRecord, ...]
    questions: tuple[QuestionRecord, ...]
    skipped: frozenset[str]  # step keys

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Done and total by kind of step. A question that is due again does not count as done."""
        return {
            "read": (int(self.read), 1),
            "task": (sum(bool(one.passed) for one in self.tasks), len(self.tasks)),
            "exercise": (sum(bool(one.done) for one in self.exercises), len(self.exercises)),
            "quiz": (sum(bool(one.right) and not one.due for one in self.questions), len(self.questions)),
        }


@dataclass(frozen=True, kw_only=True)
class CourseOverview:
    """Progress on the whole course."""

    lessons: tuple[LessonStatus, ...]
    next_step: CourseStep | None
    next_was_skipped: bool
    current_task: Task | None  # in progress, if it is not the next step
    due: tuple[Question, ...]  # questions missed before

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Done and total of all lessons by kind of step."""
        counts = [lesson.counts for lesson in self.lessons]
        return {kind: (sum(one[kind][0] for one in counts), sum(one[kind][1] for one in counts)) for kind in counts[0]}
