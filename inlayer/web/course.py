"""The course as data for the page: the course service, with texts rendered as elements.

learn.service -> [course] -> learn -> page
- code is run and progress is saved only if nobody but this machine can reach the server; others can read and answer
- the correct answer is sent only after an answer was given
- elsewhere: what each operation does (inlayer/learn/service.py)
Tested in tests/web/test_learn.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from inlayer.errors import InputError
from inlayer.learn.course import Course, Question, Task
from inlayer.learn.files import FileConflictError
from inlayer.learn.links import course_elements, course_line
from inlayer.learn.progress import Progress, ProgressState, TaskRecord
from inlayer.learn.questions import FreeTextQuestion, NumberQuestion
from inlayer.learn.quiz import quiz_questions, shuffle_options
from inlayer.learn.service import MAX_SEED, CourseService, DrawnExercise, ReadOnlyError, random_seed
from inlayer.learn.steps import CourseStep, LessonStatus
from inlayer.paths import shown
from inlayer.web.schemas import RefusedError
from inlayer.web.verdict import verdict_json

__all__ = ["MAX_CODE", "MAX_SEED", "REFUSAL", "CoursePages"]

MAX_CODE = 65_536  # characters of a file
REFUSAL = (
    "Code runs only if nobody but this machine can reach the server. This server listens beyond loopback, so you can "
    "read and answer, but nothing is run or saved. Start `inlayer serve` without --host."
)


class CoursePages:
    """What the page may request. Every method reads or writes files, so keep it off the event loop."""

    def __init__(self, *, runs: bool, course: Course | None = None, progress: Progress | None = None) -> None:
        self.runs = runs
        self.notices: list[str] = []  # about a damaged progress file
        self._course, self._progress = course, progress
        self._warming: threading.Thread | None = None

    @property
    def service(self) -> CourseService:
        """A new service per request: the file on disk is the only state."""
        progress = self._progress or Progress(on_notice=self.notices.append)
        return CourseService(progress, course=self._course, read_only=not self.runs)

    # ---- reading

    def overview(self) -> dict[str, Any]:
        overview = self.service.overview()
        return {
            "lessons": [_lesson_json(status) for status in overview.lessons],
            "next": None if overview.next_step is None else _step_json(overview.next_step),
            "runs": self.runs,
            "refusal": "" if self.runs else REFUSAL,
            "notices": list(self.notices),
        }

    def lesson(self, name: str) -> dict[str, Any]:
        service = self.service
        lesson, state = service.course.lesson(name), service.state()
        return {
            "id": lesson.id,
            "number": lesson.number,
            "title": lesson.title,
            "step": lesson.step,
            "text": course_elements(lesson.text),
            "tasks": [_task_json(task, state) for task in lesson.tasks],
            "exercises": [
                self.exercise(one.id, random_seed()) | {"done": bool(state.exercise(one.id).done)}
                for one in lesson.exercises
            ],
            "questions": [
                _question_json(one, random_seed(), state.question(one.id).due)
                for one in quiz_questions(service.course, state, lesson)
            ],
        }

    def misconceptions(self) -> dict[str, Any]:
        document = self.service.course.misconceptions
        return {"title": document.title, "text": course_elements(document.body)}

    def exercise(self, name: str, seed: int) -> dict[str, Any]:
        """An exercise as the seed generates it, without its answer."""
        exercise = self.service.exercise(name)
        question = exercise.ask(seed)
        return {
            "id": exercise.id,
            "title": exercise.title,
            "kind": question.kind,
            "seed": seed,
            "text": course_elements(question.text),
            "unit": question.unit if isinstance(question, NumberQuestion) else "",
            "shape": isinstance(question, NumberQuestion) and isinstance(question.answer, tuple),
            "options": [course_line(one.text) for one in question.options] if question.kind == "choice" else [],  # type: ignore[union-attr]
        }

    # ---- answering

    def _drawn(self, name: str, seed: int) -> DrawnExercise:
        exercise = self.service.exercise(name)
        return DrawnExercise(exercise=exercise, question=exercise.ask(seed), seed=seed)

    def answer_exercise(self, name: str, seed: int, answer: str) -> dict[str, Any]:
        drawn = self._drawn(name, seed)
        if isinstance(drawn.question, FreeTextQuestion):
            points = [course_line(one) for one in drawn.question.points]
            return {"right": None, "model_answer": course_elements(drawn.question.model_answer), "points": points}
        try:
            result = self.service.answer_exercise(drawn, answer)
        except InputError as error:  # not readable as an answer, so not a try
            return {"right": False, "readable": False, "message": [["p", {}, [str(error)]]]}
        return {"right": result.correct, "readable": True, "message": course_elements(result.message)}

    def reveal_answer(self, name: str, seed: int) -> dict[str, Any]:
        """Show the answer; the exercise stays open."""
        drawn = self._drawn(name, seed)
        self.service.reveal_answer(drawn)
        question = drawn.question
        assert not isinstance(question, FreeTextQuestion)
        message = course_elements(question.explanation)
        if isinstance(question, NumberQuestion):
            given = course_line(question.formatted_answer)
            return {"right": None, "given": given, "message": message, "marks": [], "whys": []}
        return {
            "right": None,
            "given": next(course_line(option.text) for option in question.options if option.correct),
            "message": message,
            "marks": [option.correct for option in question.options],
            "whys": [course_line(option.reason) for option in question.options],
        }

    def confirm_answer(self, name: str, seed: int) -> dict[str, Any]:
        """Record the learner's own assessment that a free-text answer is complete."""
        drawn = self._drawn(name, seed)
        if not isinstance(drawn.question, FreeTextQuestion):
            raise InputError(f"{name} is graded; give an answer")
        self.service.record_exercise(drawn.exercise, correct=True)
        return {"right": True}

    def answer_question(self, name: str, seed: int, answer: str, *, again: bool) -> dict[str, Any]:
        """Grade an option: a wrong one returns its reason and the question again, the right one every reason."""
        service = self.service
        question = service.question(name)
        choice, result = service.answer_question(question, seed, answer, repeated=again)
        chosen = ord(answer.strip().strip("().").lower()) - ord("a")
        shown_options = [
            one if result.correct or number == chosen else None for number, one in enumerate(choice.options)
        ]
        return {
            "right": result.correct,
            "marks": [None if option is None else option.correct for option in shown_options],
            "whys": [None if option is None else course_line(option.reason) for option in shown_options],
            "again": None if result.correct else _question_json(question, random_seed(), 0),
        }

    # ---- the learner's file

    def file(self, name: str) -> dict[str, Any]:
        service = self.service
        task = service.course.task(name)
        if not self.runs:
            return {"code": task.start, "sum": None, "saved": False, "path": ""}
        self._warm_up()
        path, found = service.load_file(task)
        if found is None:
            return {"code": task.start, "sum": None, "saved": False, "path": shown(path)}
        if len(found.text) > MAX_CODE:
            raise InputError(f"{shown(path)} has more than {MAX_CODE:,} characters, which no task needs")
        return {"code": found.text, "sum": found.digest, "saved": True, "path": shown(path)}

    def save(self, name: str, code: str, loaded: str | None) -> dict[str, Any]:
        with _refusals():
            service = self.service
            service.require_writable()
            if len(code) > MAX_CODE:
                raise RefusedError(413, f"the code has {len(code):,} characters; at most {MAX_CODE:,} are allowed")
            return {"sum": service.save_file(service.course.task(name), code, loaded)}

    def reset(self, name: str, loaded: str | None) -> dict[str, Any]:
        """Restore the task's start file; the old file is kept."""
        with _refusals():
            service = self.service
            kept = service.reset_file(service.course.task(name), loaded=loaded)
        return {**self.file(name), "kept": kept.name if kept else ""}

    def check(self, name: str, code: str, loaded: str | None) -> dict[str, Any]:
        """Save the code as the learner's file, grade it, and record the result."""
        saved = self.save(name, code, loaded)
        service = self.service
        task = service.course.task(name)
        verdict = service.check(task, code)
        return {**verdict_json(verdict, task, service.compare_with_walk(verdict)), **saved}

    # ---- help

    def hint(self, name: str) -> dict[str, Any]:
        """All hints up to the next one."""
        service = self.service
        task = service.course.task(name)
        level = service.hint(task).level if self.runs else len(task.hints)
        return {"hints": [course_elements(text) for text in task.hints[:level]]}

    def solution(self, name: str) -> dict[str, Any]:
        service = self.service
        task = service.course.task(name)
        service.record_solution(task)
        return {"solution": course_elements(f"```python\n{task.solution}```"), "why": course_elements(task.why)}

    def read(self, name: str) -> dict[str, Any]:
        """Record that a lesson was opened."""
        with _refusals():
            self.service.require_writable()
            self.service.mark_read(self.service.course.lesson(name))
        return {}

    def skip(self, key: str) -> dict[str, Any]:
        with _refusals():
            self.service.skip(key)
        return {}

    def _warm_up(self) -> None:
        """Start the fork server while the learner reads, because that takes seconds."""
        if self._warming is None:
            self._warming = threading.Thread(target=_start_fork_server, name="inlayer-fork-server", daemon=True)
            self._warming.start()


def _start_fork_server() -> None:
    from inlayer.learn.sandbox.fork_server import fork_server

    with suppress(Exception):  # the first check reports what is wrong
        fork_server()


@contextmanager
def _refusals() -> Iterator[None]:
    """Translate errors of the service into HTTP statuses."""
    try:
        yield
    except ReadOnlyError:
        raise RefusedError(403, REFUSAL) from None
    except FileConflictError as error:
        raise RefusedError(409, str(error)) from None


def _lesson_json(status: LessonStatus) -> dict[str, Any]:
    lesson, counts = status.lesson, status.counts
    return {
        "id": lesson.id,
        "number": lesson.number,
        "title": lesson.title,
        "step": lesson.step,
        "read": status.read,
        "tasks": [
            {"id": task.id, "title": task.title, "state": _task_state(task, record, status.skipped)}
            for task, record in zip(lesson.tasks, status.tasks, strict=True)
        ],
        "exercises": {"done": counts["exercise"][0], "total": counts["exercise"][1]},
        "quiz": {
            "done": sum(bool(one.right) for one in status.questions),
            "total": counts["quiz"][1],
            "due": sum(one.due > 0 for one in status.questions),
        },
    }


def _task_json(task: Task, state: ProgressState) -> dict[str, Any]:
    record = state.task(task.id)
    return {
        "id": task.id,
        "title": task.title,
        "step": task.step,
        "text": course_elements(task.text),
        "state": _task_state(task, record, frozenset(state.skipped)),
        "hints": [course_elements(text) for text in task.hints[: record.hints]],
        "n_hints": len(task.hints),
    }


def _task_state(task: Task, record: TaskRecord, skipped: frozenset[str]) -> str:
    if record.passed:
        return "passed"
    if f"task/{task.id}" in skipped:
        return "skipped"
    return "tried" if record.tries else "open"


def _step_json(step: CourseStep) -> dict[str, Any]:
    lesson = step.lesson
    if step.kind == "task":
        title = next(task.title for task in lesson.tasks if task.id == step.id)
        return {"lesson": lesson.id, "task": step.id, "part": None, "name": title}
    part = {"read": None, "exercise": "exercises", "quiz": "quiz"}[step.kind]
    title = f"{lesson.number}. {lesson.title}"
    return {"lesson": lesson.id, "task": None, "part": part, "name": title if part is None else f"{title}: {part}"}


def _question_json(question: Question, seed: int, due: int) -> dict[str, Any]:
    choice = shuffle_options(question, seed)
    return {
        "id": question.id,
        "lesson": question.lesson,
        "seed": seed,
        "text": course_elements(choice.text),
        "options": [course_line(option.text) for option in choice.options],
        "due": due,
    }
