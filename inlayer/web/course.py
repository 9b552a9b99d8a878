"""Routes of the course: its page, and what the page shows and does.

page -> guard -> [course] -> CourseService
- everything reads or writes files, so it runs in threads (jobs.py); grading has threads of its own
- code is run and files are written only if nobody but this machine can reach the server; others may read and answer
- an answer reaches the page only after the learner has given one, or asked to see it
Tested in tests/web/test_course.py.
"""

from __future__ import annotations

import inspect
import re
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from inlayer.errors import InputError
from inlayer.files import shown
from inlayer.learn.course import Lesson, Task
from inlayer.learn.course_steps import CourseStep, LessonStatus
from inlayer.learn.html import learn_page, learn_policy
from inlayer.learn.links import course_elements, course_line
from inlayer.learn.progress import ProgressFile
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, GradedQuestion, NumberQuestion
from inlayer.learn.quiz import quiz_questions
from inlayer.learn.service import AskedQuestion, CourseService, ReadOnlyError, random_seed
from inlayer.learn.task_files import FileConflictError
from inlayer.trace.facts import plain, to_json
from inlayer.web.guard import error_response
from inlayer.web.jobs import Jobs
from inlayer.web.schemas import (
    AnswerRequest,
    CodeRequest,
    ExerciseQuery,
    LessonQuery,
    ReadRequest,
    ResetRequest,
    SkipRequest,
    TaskRequest,
)

if TYPE_CHECKING:
    from torch import Tensor

    from inlayer.learn.grader import Verdict

__all__ = ["GRADING_QUEUE", "GRADING_THREADS", "add_course"]

GRADING_THREADS, GRADING_QUEUE = 2, 16
READING_THREADS, READING_QUEUE = 1, 256
MAX_PRINTED = 16_384  # characters of the code's output
MAX_ROWS, MAX_CHANNELS = 12, 8  # of the learner's tensor
READ_ONLY = (
    "This server can be reached from other machines, so it does not run code or save anything. You can read the course "
    "and answer questions. To work on tasks, start `inlayer serve` without --host."
)


def add_course(app: FastAPI, *, runs_code: bool) -> None:
    """Add the course to an application; each route is a method of `CourseView`."""
    view = CourseView(read_only=not runs_code)
    reading, grading = Jobs(READING_THREADS, READING_QUEUE), Jobs(GRADING_THREADS, GRADING_QUEUE)

    def add(method: str, path: str, call: Callable[..., Any], jobs: Jobs) -> None:
        async def endpoint(request: Request, **given: Any) -> Response:
            body = await jobs.run(lambda: to_json(call(**given)), request)
            return Response(body, media_type="application/json")

        takes_request = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
        signature = inspect.signature(call, eval_str=True)
        endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[*signature.parameters.values(), takes_request], return_annotation=Response
        )
        app.add_api_route(path, endpoint, methods=[method], name=call.__name__, description=call.__doc__)

    add("GET", "/api/course", view.overview, reading)
    for name in ("lesson", "misconceptions", "exercise", "file"):
        add("GET", f"/api/course/{name}", getattr(view, name), reading)
    for name in ("save", "reset", "hint", "solution", "answer", "read", "skip"):
        add("POST", f"/api/course/{name}", getattr(view, name), reading)
    add("POST", "/api/course/check", view.check, grading)

    @app.get("/learn", include_in_schema=False)
    async def get_page() -> Response:
        nonce = secrets.token_urlsafe(18)
        headers = {"content-security-policy": learn_policy(nonce)}
        return Response(learn_page(nonce), media_type="text/html", headers=headers)

    @app.exception_handler(ReadOnlyError)
    async def read_only(_: Request, __: Exception) -> Response:
        return error_response(403, READ_ONLY)

    @app.exception_handler(FileConflictError)
    async def conflict(_: Request, error: Exception) -> Response:
        return error_response(409, str(error))


class CourseView:
    """What the page shows, as plain JSON values. Texts are trees of elements (render/markdown.py)."""

    def __init__(self, *, read_only: bool) -> None:
        self.read_only = read_only
        self.notices: list[str] = []  # about a damaged progress file that was replaced
        self._warming: threading.Thread | None = None

    @property
    def service(self) -> CourseService:
        """A new service per request: the progress file on disk is the only state."""
        return CourseService(ProgressFile(on_notice=self.notices.append), read_only=self.read_only)

    # ---- reading

    def overview(self) -> dict[str, Any]:
        """List the lessons with the learner's progress."""
        overview = self.service.overview()
        return {
            "lessons": [_lesson_status(one) for one in overview.lessons],
            "next": None if overview.next_step is None else _location(overview.next_step),
            "runs_code": not self.read_only,
            "read_only_message": READ_ONLY if self.read_only else "",
            "notices": list(self.notices),
        }

    def lesson(self, query: Annotated[LessonQuery, Query()]) -> dict[str, Any]:
        """Return a lesson: its text, tasks, exercises and quiz questions."""
        lesson, state = self.service.course.lesson(query.id), self.service.state()
        status = self.service.lesson_status(lesson, state)
        return {
            **_lesson_head(lesson),
            "text": course_elements(lesson.text),
            "tasks": [
                {**_task(task, status), "step": task.step, "text": course_elements(task.text),
                 "hints": [course_elements(text) for text in task.hints[: record.hints]], "n_hints": len(task.hints)}
                for task, record in zip(lesson.tasks, status.tasks, strict=True)
            ],
            "exercises": [
                {**_exercise(self.service.ask(one.id, random_seed())), "done": bool(record.done)}
                for one, record in zip(lesson.exercises, status.exercises, strict=True)
            ],
            "questions": [
                _question(self.service.ask(one.id, random_seed()), state.question(one.id).due)
                for one in quiz_questions(self.service.course, state, lesson)
            ],
        }  # fmt: skip

    def misconceptions(self) -> dict[str, Any]:
        """Return the page of common misconceptions."""
        page = self.service.course.misconceptions
        return {"title": page.title, "text": course_elements(page.body)}

    def exercise(self, query: Annotated[ExerciseQuery, Query()]) -> dict[str, Any]:
        """Return an exercise with the numbers of a seed."""
        return _exercise(self.service.ask(query.id, query.seed))

    def read(self, body: ReadRequest) -> dict[str, Any]:
        """Record that a lesson was read."""
        self.service.require_writable()
        self.service.mark_read(self.service.course.lesson(body.lesson))
        return {}

    def skip(self, body: SkipRequest) -> dict[str, Any]:
        """Skip a step of the course."""
        return {"skipped": self.service.skip(body.step)}

    # ---- answers

    def answer(self, body: AnswerRequest) -> dict[str, Any]:
        """Grade an answer to an exercise or a quiz question."""
        asked = self.service.ask(body.exercise or body.question or "", body.seed)
        question = asked.question
        if body.reveal:
            return _revealed(self.service.reveal_answer(asked))
        if isinstance(question, FreeTextQuestion):
            if body.matches_model:
                self.service.record_exercise(asked.id, correct=True)
                return {"correct": True}
            points = [course_line(one) for one in question.points]
            return {"correct": None, "model_answer": course_elements(question.model_answer), "points": points}
        if body.matches_model:
            raise InputError(f"{asked.id} is graded; send an answer")
        try:
            result = self.service.answer(asked, body.answer, repeated=body.repeated)
        except InputError as error:  # a typing error, which does not count as a try
            if body.question is not None:
                raise
            return {"correct": False, "is_valid": False, "message": [["p", {}, [str(error)]]]}
        graded = {"correct": result.correct, "is_valid": True, "message": course_elements(result.message)}
        return graded if body.exercise is not None else graded | self._option_results(asked, body, result.correct)

    def _option_results(self, asked: AskedQuestion, body: AnswerRequest, correct: bool) -> dict[str, Any]:
        """A wrong option gets its reason and the question again; a correct one gets every reason."""
        options = asked.question.options if isinstance(asked.question, ChoiceQuestion) else ()
        chosen = ord(body.answer.strip().lower()[0]) - ord("a")
        shown_options = [option if correct or number == chosen else None for number, option in enumerate(options)]
        return {
            "option_results": [None if option is None else option.correct for option in shown_options],
            "reasons": [None if option is None else course_line(option.reason) for option in shown_options],
            "next_try": None if correct else _question(self.service.ask(asked.id, random_seed()), 0),
        }

    # ---- the learner's file

    def file(self, query: Annotated[TaskRequest, Query()]) -> dict[str, Any]:
        """Return the learner's file for a task, or the start file."""
        task = self.service.course.task(query.task)
        if self.read_only:
            return {"code": task.start, "digest": None, "path": ""}
        if self._warming is None:  # while the learner is still reading: it takes seconds, once
            self._warming = threading.Thread(target=_start_fork_server, name="inlayer-fork-server", daemon=True)
            self._warming.start()
        path, source = self.service.load_file(task)
        code, digest = (task.start, None) if source is None else (source.text, source.digest)
        return {"code": code, "digest": digest, "path": shown(path)}

    def save(self, body: CodeRequest) -> dict[str, Any]:
        """Save code as the learner's file."""
        return {"digest": self.service.save_file(self.service.course.task(body.task), body.code, body.loaded)}

    def reset(self, body: ResetRequest) -> dict[str, Any]:
        """Restore a task's start file; the old file is kept."""
        kept = self.service.reset_file(self.service.course.task(body.task), loaded=body.loaded)
        return {**self.file(body), "kept": "" if kept is None else kept.name}

    def check(self, body: CodeRequest) -> dict[str, Any]:
        """Save code as the learner's file and grade it."""
        saved, task = self.save(body), self.service.course.task(body.task)
        return {**self._verdict(self.service.check(task, body.code), task), **saved}

    def _verdict(self, verdict: Verdict, task: Task) -> dict[str, Any]:
        from inlayer.learn.feedback import feedback_lines

        failure, printed = verdict.failure, verdict.printed
        line = re.search(r"\bline (\d{1,6})\b", failure.message) if failure else None
        if len(printed) > MAX_PRINTED:
            printed = f"{printed[:MAX_PRINTED]}\n({len(printed) - MAX_PRINTED:,} more characters)"
        comparison = self.service.compare_with_walk(verdict)
        return {
            "task": task.id,
            "passed": verdict.passed,
            "summary": verdict.summary,
            "results": [
                {"name": one.name, "description": one.description, "state": one.state, "rule": one.rule,
                 "message": one.message,
                 "feedback": [] if one.feedback is None else list(feedback_lines(one.feedback))}
                for one in verdict.results
            ],
            "printed": printed,
            "line": int(line[1]) if line else None,
            "step": task.step,
            "why": course_elements(task.why) if verdict.passed else None,
            "tensor": None if comparison is None or verdict.walk_output is None
            else _tensor(verdict.walk_output, comparison.message),
        }  # fmt: skip

    # ---- help

    def hint(self, body: TaskRequest) -> dict[str, Any]:
        """Return the hints shown so far and the next one."""
        task = self.service.course.task(body.task)
        shown_hints = task.hints if self.read_only else task.hints[: self.service.hint(task).level]
        return {"hints": [course_elements(text) for text in shown_hints]}

    def solution(self, body: TaskRequest) -> dict[str, Any]:
        """Return a solution and why it works."""
        task = self.service.course.task(body.task)
        self.service.record_solution(task)
        return {"solution": course_elements(f"```python\n{task.solution}```"), "why": course_elements(task.why)}


def _start_fork_server() -> None:
    from inlayer.learn.sandbox.fork_server import fork_server

    with suppress(Exception):  # the first check reports what is wrong
        fork_server()


def _lesson_head(lesson: Lesson) -> dict[str, Any]:
    return {"id": lesson.id, "number": lesson.number, "title": lesson.title, "step": lesson.step}


def _lesson_status(status: LessonStatus) -> dict[str, Any]:
    counts = {kind: {"done": done, "total": total} for kind, (done, total) in status.counts.items()}
    return {
        **_lesson_head(status.lesson),
        "read": status.read,
        "tasks": [_task(task, status) for task in status.lesson.tasks],
        "exercises": counts["exercise"],
        "quiz": {**counts["quiz"], "due": sum(one.due > 0 for one in status.questions)},
    }


def _task(task: Task, status: LessonStatus) -> dict[str, Any]:
    record = status.tasks[status.lesson.tasks.index(task)]
    tried = "tried" if record.tries else "open"
    state = "passed" if record.passed else "skipped" if f"task/{task.id}" in status.skipped else tried
    return {"id": task.id, "title": task.title, "state": state}


def _location(step: CourseStep) -> dict[str, Any]:
    """Where on the page a step is."""
    lesson = step.lesson
    if step.kind == "task":
        title = next(task.title for task in lesson.tasks if task.id == step.id)
        return {"lesson": lesson.id, "task": step.id, "part": None, "title": title}
    part = {"read": None, "exercise": "exercises", "quiz": "quiz"}[step.kind]
    title = f"{lesson.number}. {lesson.title}"
    return {"lesson": lesson.id, "task": None, "part": part, "title": title if part is None else f"{title}: {part}"}


def _question(asked: AskedQuestion, due: int) -> dict[str, Any]:
    return {**_exercise(asked), "lesson": asked.lesson, "due": due}


def _exercise(asked: AskedQuestion) -> dict[str, Any]:
    """Show a question without its answer."""
    question = asked.question
    options = question.options if isinstance(question, ChoiceQuestion) else ()
    return {
        "id": asked.id,
        "title": asked.title,
        "kind": question.kind,
        "seed": asked.seed,
        "text": course_elements(question.text),
        "unit": question.unit if isinstance(question, NumberQuestion) else "",
        "is_shape": isinstance(question, NumberQuestion) and isinstance(question.answer, tuple),
        "options": [course_line(option.text) for option in options],
    }


def _revealed(question: GradedQuestion) -> dict[str, Any]:
    options = question.options if isinstance(question, ChoiceQuestion) else ()
    return {
        "correct": None,
        "answer": course_line(question.formatted_answer),
        "message": course_elements(question.explanation),
        "option_results": [option.correct for option in options],
        "reasons": [course_line(option.reason) for option in options],
    }


def _tensor(tensor: Tensor, message: str) -> dict[str, Any]:
    """Show the first rows of the learner's tensor, and how it compares with the walk's."""
    import numpy as np
    import torch

    tensor = tensor.detach().cpu()
    width = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.reshape(-1, width) if width else tensor.reshape(0, 1)
    hidden_rows = len(rows) - MAX_ROWS
    is_integer = not (tensor.is_floating_point() or tensor.is_complex())
    first = rows[:MAX_ROWS, :MAX_CHANNELS].to(torch.int64 if is_integer else torch.float64)
    note = [message, f"{hidden_rows:,} more rows are not shown." if hidden_rows > 0 else ""]
    labels = [",".join(map(str, index)) for index in np.ndindex(*tensor.shape[:-1])][:MAX_ROWS]
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "is_integer": is_integer,
        "rows": plain(first.tolist()),
        "labels": labels,
        "more": max(0, rows.shape[1] - MAX_CHANNELS),
        "note": " ".join(filter(None, note)),
    }
