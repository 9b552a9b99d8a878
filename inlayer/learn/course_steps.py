"""The path through the course: each lesson's steps, finished steps, the next step, and the order of quiz questions.

course, progress -> [steps] -> service
- a quiz first asks questions due from earlier quizzes, then the lesson's questions: new ones before those asked earlier
- a missed question returns after two more questions, with its options shuffled, until it is answered correctly
- the question is then due in the next two quizzes, and in two more whenever it is missed there (progress_file.py)
Tested in tests/learn/test_service.py, tests/learn/test_progress_file.py, and tests/learn/test_quiz.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from inlayer.learn.course import Course, Lesson, Task
from inlayer.learn.progress_file import ProgressRecord, ProgressState
from inlayer.learn.questions import AnswerResult, Question

GAP = 2  # questions between a miss and the next attempt


@dataclass(frozen=True)
class CourseStep:
    """One thing to do: read a lesson, solve a task, answer an exercise, take a quiz."""

    kind: Literal["read", "task", "exercise", "quiz"]
    id: str
    lesson: Lesson
    title: str  # in words: "the task gather, Gather the rows yourself"
    is_done: bool
    is_skipped: bool

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.id}"

    @property
    def command(self) -> str:
        return f"inlayer learn {'check' if self.kind == 'task' else self.kind} {self.id}"

    def to_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "id": self.id, "lesson": self.lesson.id, "title": self.title,
                "command": self.command}  # fmt: skip


class LessonStatus:
    """A lesson with a learner's progress: its tasks, exercises, and questions, each with its record."""

    def __init__(self, lesson: Lesson, state: ProgressState) -> None:
        self.lesson = lesson
        self.read, self.quiz = state.record("read", lesson.id), state.record("quiz", lesson.id)
        self.tasks = [(task, state.record("task", task.id)) for task in lesson.tasks]
        self.exercises = [(exercise, state.record("exercise", exercise.id)) for exercise in lesson.exercises]
        self.questions = [(question, state.record("question", question.id)) for question in lesson.questions]

    def steps(self) -> Iterator[CourseStep]:
        """Yield the steps of the lesson in order: the text, its tasks, its exercises, its quiz."""
        lesson, name = self.lesson, f"lesson {self.lesson.number}, {self.lesson.title}"
        yield CourseStep("read", lesson.id, lesson, f"read {name}", bool(self.read.done_at), bool(self.read.skipped_at))
        for task, record in self.tasks:
            title = f"the task {task.id}, {task.title}"
            yield CourseStep("task", task.id, lesson, title, bool(record.done_at), bool(record.skipped_at))
        for exercise, record in self.exercises:
            title = f"the exercise {exercise.id}, {exercise.title}"
            yield CourseStep("exercise", exercise.id, lesson, title, bool(record.done_at), bool(record.skipped_at))
        is_done = all(record.done_at for _, record in self.questions)
        yield CourseStep("quiz", lesson.id, lesson, f"the quiz of {name}", is_done, bool(self.quiz.skipped_at))

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """Return how many steps of each kind are done, and the total. A question that is due again is not done."""
        records = {
            "read": [self.read],
            "task": [record for _, record in self.tasks],
            "exercise": [record for _, record in self.exercises],
            "quiz": [record for _, record in self.questions],
        }
        return {
            kind: (sum(bool(record.done_at) and not record.due for record in same_kind), len(same_kind))
            for kind, same_kind in records.items()
        }

    @property
    def n_due(self) -> int:
        """The number of questions that return because they were missed."""
        return sum(record.due > 0 for _, record in self.questions)

    def to_dict(self) -> dict[str, Any]:
        return {
            **{name: getattr(self.lesson, name) for name in ("number", "id", "title", "step")},
            "read": bool(self.read.done_at),
            "tasks": [
                {"id": task.id, "title": task.title, "state": _task_state(record), **vars(record)}
                for task, record in self.tasks
            ],
            "exercises": [
                {"id": part.id, "title": part.title, "graded": part.ask(0).grading == "graded", **vars(record)}
                for part, record in self.exercises
            ],
            "questions": [{"id": question.id, **vars(record)} for question, record in self.questions],
            "counts": {kind: {"done": done, "total": total} for kind, (done, total) in self.counts.items()},
            "due": self.n_due,
        }


def _task_state(record: ProgressRecord) -> str:
    tried = "tried" if record.attempts else "open"
    return "passed" if record.done_at else "skipped" if record.skipped_at else tried


class CourseOverview:
    """The course with a learner's progress."""

    def __init__(self, course: Course, state: ProgressState) -> None:
        self.course, self.state = course, state
        self.lessons = [LessonStatus(lesson, state) for lesson in course.lessons]
        self.steps = [step for lesson in self.lessons for step in lesson.steps()]

    def open_steps(self, kind: str | None = None) -> list[CourseStep]:
        """Return the steps that are not done, optionally of one kind, with skipped steps last."""
        remaining = [step for step in self.steps if kind in {None, step.kind} and not step.is_done]
        return sorted(remaining, key=lambda step: step.is_skipped)

    @property
    def next_step(self) -> CourseStep | None:
        """The first step that is neither done nor skipped, else the first skipped step, else None."""
        return next(iter(self.open_steps()), None)

    @property
    def current_task(self) -> Task | None:
        """The task in progress, unless you have passed it or it is the next step."""
        current, step = self.course.tasks.get(self.state.current), self.next_step
        is_next = current is not None and step is not None and step.key == f"task/{current.id}"
        return None if current is None or is_next or self.state.record("task", current.id).done_at else current

    @property
    def due(self) -> list[Question]:
        """Questions that return because they were missed in an earlier quiz."""
        return [item for item in self.course.questions.values() if self.state.record("question", item.id).due]

    def quiz(self, lesson: Lesson | None) -> list[Question]:
        """Return the questions of a quiz in order: due ones, then the lesson's other questions, new ones first."""
        due = self.due
        own = [question for question in (lesson.questions if lesson else ()) if question not in due]
        return due + sorted(own, key=lambda question: self.state.record("question", question.id).attempts > 0)

    @property
    def next_quiz(self) -> Lesson | None:
        """The first lesson whose quiz is neither done nor skipped, else the first whose quiz is skipped."""
        return next((step.lesson for step in self.open_steps("quiz")), None)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        counts = [lesson.counts for lesson in self.lessons]
        return {
            kind: (sum(lesson[kind][0] for lesson in counts), sum(lesson[kind][1] for lesson in counts))
            for kind in counts[0]
        }


class QuizRun:
    """One quiz from its first question to its last. `question` is the current one, or None at the end."""

    def __init__(self, questions: Iterable[Question], seed: int) -> None:
        self.seed = seed
        self.missed: list[str] = []  # ids, in the order they were first missed
        self.n_answers = 0
        self._remaining = deque(questions)
        self.n_questions = len(self._remaining)

    @property
    def question(self) -> Question | None:
        """The current question with its options shuffled."""
        return self._remaining[0].ask(self.seed + self.n_answers) if self._remaining else None

    @property
    def repeated(self) -> bool:
        """True if the current question was missed earlier in this quiz."""
        return bool(self._remaining) and self._remaining[0].id in self.missed

    def answer(self, letter: str) -> AnswerResult:
        """Grade an answer and advance; an InputError for an invalid letter changes nothing."""
        question = self._remaining[0]
        result = question.ask(self.seed + self.n_answers).grade(letter)
        self._remaining.popleft()
        self.n_answers += 1
        if not result.correct:
            if question.id not in self.missed:
                self.missed.append(question.id)
            self._remaining.insert(min(GAP, len(self._remaining)), question)
        return result
