"""Routes for the course: its page, and the page's content and actions.

page -> guard -> [course] -> CourseService
- the page is one document: the files in learn/page/ and parts of the walk page, plain JavaScript in small files that
  share one scope, in the order below. Only the editor, CodeMirror, has a build step (scripts/editor)
- the content security policy lists scripts and the style sheet by hash. The editor creates <style> elements, which a
  nonce in each response allows. Only the same server's walk page may be framed
- every route reads or writes files, so routes run in threads (worker_threads.py); grading has separate threads
- the server runs code and writes files only if no other machine can reach it; reading and answering always work
- an answer is sent to the page only after the learner has given one, or asked to see it
Tested in tests/web/test_course.py, and in Chromium in tests/browser/test_learn.py.
"""

from __future__ import annotations

import itertools
import re
import secrets
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.responses import Response

from inlayer.errors import InputError
from inlayer.facts_base import plain
from inlayer.files import format_path
from inlayer.geometry.map_page import map_files
from inlayer.learn.links import course_elements, course_line
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, GradedQuestion, TheoryQuestion, random_seed
from inlayer.learn.sandbox.fork_server import fork_server
from inlayer.learn.service import CourseService, ReadOnlyError
from inlayer.learn.task_files import FileConflictError
from inlayer.render import fill_page, hash_of, read_files
from inlayer.tensors import dtype_name
from inlayer.threads import in_thread
from inlayer.trace.html import read_part, shared_style
from inlayer.web import schemas
from inlayer.web.guard import error_response
from inlayer.web.worker_threads import WorkerThreads, add_route

if TYPE_CHECKING:
    from torch import Tensor

GRADING_THREADS, GRADING_QUEUE = 2, 16
READING_THREADS, READING_QUEUE = 1, 256
MAX_ROWS, MAX_CHANNELS = 12, 8  # shown part of the learner's tensor
READ_ONLY = (
    "This server can be reached from other machines, so it does not run code or save anything. You can read the course "
    "and answer questions. To work on tasks, start `inlayer serve` without --host."
)


SHARED_SCRIPTS = ("dom.js", "format.js", "grid.js")
SCRIPTS = (
    "state.js", "server.js", "text.js", "walk_pane.js", "results.js", "task.js", "exercises.js", "quiz.js",
    "lessons.js", "main.js",
)  # fmt: skip
read_own = partial(read_part, package="inlayer.learn")


@cache
def page_parts() -> dict[str, str]:
    files = [
        map_files("visible.js"),
        read_files("inlayer.render", "theme.js"),
        *map(read_part, SHARED_SCRIPTS),
        *map(read_own, SCRIPTS),
    ]
    return {
        "style": "\n".join([shared_style(), read_own("learn.css"), read_own("exercises.css")]),
        "editor": read_own("editor.js"),
        "script": "\n(() => {\n" + '"use strict";\n' + "\n".join(files) + "})();\n",
    }


def page_policy(nonce: str) -> str:
    """Return the content security policy of the page."""
    style, editor, script = (hash_of(page_parts()[name]) for name in ("style", "editor", "script"))
    return (
        f"default-src 'none'; script-src '{editor}' '{script}'; style-src '{style}' 'nonce-{nonce}'; img-src data:; "
        "connect-src 'self'; frame-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    )


def add_course(app: FastAPI, *, allow_code_execution: bool) -> None:
    """Add the course to an application; each route is a method of `CourseView`."""
    view = CourseView(read_only=not allow_code_execution)
    reading = WorkerThreads(READING_THREADS, READING_QUEUE)
    grading = WorkerThreads(GRADING_THREADS, GRADING_QUEUE)

    add_route(app, "GET /api/course", view.overview, reading)
    for name in ("lesson", "misconceptions", "exercise", "file"):
        add_route(app, f"GET /api/course/{name}", getattr(view, name), reading)
    for name in ("save", "reset", "hint", "solution", "answer", "read", "skip"):
        add_route(app, f"POST /api/course/{name}", getattr(view, name), reading)
    add_route(app, "POST /api/course/check", view.check, grading)

    @app.get("/learn", include_in_schema=False)
    async def get_page() -> Response:
        nonce = secrets.token_urlsafe(18)
        page = fill_page(read_own("learn.html"), {"nonce": nonce, **page_parts()})
        return Response(page, media_type="text/html", headers={"content-security-policy": page_policy(nonce)})

    @app.exception_handler(ReadOnlyError)
    async def read_only(_: Request, __: Exception) -> Response:
        return error_response(403, READ_ONLY)

    @app.exception_handler(FileConflictError)
    async def conflict(_: Request, error: Exception) -> Response:
        return error_response(409, str(error))


class CourseView:
    """The page's content as plain JSON values. Texts are trees of elements (render/markdown.py)."""

    def __init__(self, *, read_only: bool) -> None:
        self.read_only = read_only
        self.notices: list[str] = []  # such as a note that a damaged progress file was replaced

    @property
    def service(self) -> CourseService:
        """Return a new service for each request: the progress file on disk is the only state."""
        return CourseService(ProgressFile(on_notice=self.notices.append), read_only=self.read_only)

    # ---- reading

    def overview(self) -> dict[str, Any]:
        """List the lessons with the learner's progress."""
        overview = self.service.overview()
        return {
            "lessons": [lesson.to_dict() for lesson in overview.lessons],
            "next": overview.next_step and overview.next_step.to_dict(),
            "runs_code": not self.read_only,
            "read_only_message": READ_ONLY if self.read_only else "",
            "notices": list(self.notices),
        }

    def lesson(self, query: Annotated[schemas.LessonQuery, Query()]) -> dict[str, Any]:
        """Return a lesson: its text, tasks, exercises, and quiz questions."""
        overview = self.service.overview()
        lesson = overview.course.lesson(query.id)
        status = overview.lessons[lesson.number - 1]
        data = status.to_dict() | {"text": course_elements(lesson.text)}
        for shown, (task, record) in zip(data["tasks"], status.tasks, strict=True):
            hints = [course_elements(text) for text in task.hints[: record.hints]]
            shown |= {"step": task.step, "text": course_elements(task.text), "hints": hints, "n_hints": len(task.hints)}
        data["exercises"] = [
            _question(exercise.ask(random_seed())) | {"done": bool(record.done_at)}
            for exercise, record in status.exercises
        ]
        data["questions"] = [
            _question(question.ask(random_seed())) | {"due": overview.state.record("question", question.id).due}
            for question in overview.quiz(lesson)
        ]
        return data

    def misconceptions(self) -> dict[str, Any]:
        """Return the page of common misconceptions."""
        page = self.service.course.misconceptions
        return {"title": page.title, "text": course_elements(page.body)}

    def exercise(self, query: Annotated[schemas.ExerciseQuery, Query()]) -> dict[str, Any]:
        """Return an exercise with numbers generated from a seed."""
        return _question(self.service.ask(query.id, query.seed))

    def read(self, body: schemas.ReadRequest) -> dict[str, Any]:
        """Record that a lesson was read."""
        self.service.require_writable()
        self.service.mark_read(self.service.course.lesson(body.lesson))
        return {}

    def skip(self, body: schemas.SkipRequest) -> dict[str, Any]:
        """Skip a step of the course."""
        return {"skipped": self.service.skip(body.step)}

    # ---- answers

    def answer(self, body: schemas.AnswerRequest) -> dict[str, Any]:
        """Grade an answer to an exercise or a quiz question."""
        service = self.service
        question = service.ask(body.exercise or body.question or "", body.seed)
        field = "exercise" if question.id in service.course.exercises else "question"
        if getattr(body, field) is None:
            raise InputError(f"{question.id} must be sent as {field}")
        if body.reveal:
            return {"correct": None, **_reveal(service.reveal_answer(question))}
        if isinstance(question, FreeTextQuestion):
            if body.matches_sample:
                service.record_exercise(question.id, correct=True)
                return {"correct": True}
            points = [course_line(point) for point in question.points]
            return {"correct": None, "sample_answer": course_elements(question.sample_answer), "points": points}
        if body.matches_sample:
            raise InputError(f"{question.id} is graded; send an answer")
        try:
            result = service.answer(question, body.answer, repeated=body.repeated)
        except InputError as error:  # a typing error is not an attempt
            if body.question is not None:
                raise
            return {"correct": False, "is_valid": False, "message": [["p", {}, [str(error)]]]}
        graded = {"correct": result.correct, "is_valid": True, "message": course_elements(result.message)}
        if body.exercise is not None:
            return graded
        assert isinstance(question, ChoiceQuestion)
        if result.correct:
            return {**_reveal(question), **graded, "next_try": None}
        next_try = _question(service.ask(question.id, random_seed()))
        return {**_reveal(question, result.option), **graded, "next_try": next_try}

    # ---- the learner's file

    def file(self, query: Annotated[schemas.TaskRequest, Query()]) -> dict[str, Any]:
        """Return the learner's file for a task, or the starter file."""
        task = self.service.course.task(query.task)
        if self.read_only:
            return {"code": task.starter, "digest": None, "path": ""}
        warm_up()
        path, source = self.service.load_file(task)
        code, digest = (task.starter, None) if source is None else (source.text, source.digest)
        return {"code": code, "digest": digest, "path": format_path(path)}

    def save(self, body: schemas.CodeRequest) -> dict[str, Any]:
        """Save code as the learner's file."""
        return {"digest": self.service.save_file(self.service.course.task(body.task), body.code, body.base_digest)}

    def reset(self, body: schemas.ResetRequest) -> dict[str, Any]:
        """Restore a task's starter file; the old file is kept."""
        backup = self.service.reset_file(self.service.course.task(body.task), base_digest=body.base_digest)
        return {**self.file(body), "kept": "" if backup is None else backup.name}

    def check(self, body: schemas.CodeRequest) -> dict[str, Any]:
        """Save code as the learner's file and grade it."""
        saved, task = self.save(body), self.service.course.task(body.task)
        verdict = self.service.check(task, body.code)
        line = re.search(r"\bline (\d{1,6})\b", verdict.failure.message) if verdict.failure else None
        comparison = self.service.compare_with_walk(verdict)
        return {
            **verdict.to_dict(),
            **saved,
            "line": int(line[1]) if line else None,
            "step": task.step,
            "why": course_elements(task.explanation) if verdict.passed else None,
            "tensor": comparison and _tensor(comparison.tensor, comparison.message),
        }

    # ---- help

    def hint(self, body: schemas.TaskRequest) -> dict[str, Any]:
        """Return the hints shown so far and the next one."""
        task = self.service.course.task(body.task)
        shown_hints = task.hints if self.read_only else task.hints[: self.service.hint(task)]
        return {"hints": [course_elements(text) for text in shown_hints]}

    def solution(self, body: schemas.TaskRequest) -> dict[str, Any]:
        """Return a solution and why it works."""
        task = self.service.course.task(body.task)
        self.service.record_solution(task)
        return {"solution": course_elements(f"```python\n{task.solution}```"), "why": course_elements(task.explanation)}


@cache
def warm_up() -> None:
    """Start the fork server once, in the background: it takes seconds, while the learner is still reading.

    If the server does not start, the first check reports the reason.
    """
    in_thread(lambda _: fork_server(), None, "inlayer-fork-server")


def _question(question: TheoryQuestion) -> dict[str, Any]:
    """Return a question as JSON values, without its answer."""
    data = question.to_dict()
    options = [course_line(text) for text in data["options"].values()]
    return data | {"text": course_elements(data["text"]), "options": options}


def _reveal(question: GradedQuestion, only: int | None = None) -> dict[str, Any]:
    """Return the answer and every option's reason, or `only` one option's reason if the question is asked again."""
    options = question.options if isinstance(question, ChoiceQuestion) else ()
    visible = [option if only in (None, number) else None for number, option in enumerate(options)]
    data = {
        "option_results": [option and option.correct for option in visible],
        "reasons": [option and course_line(option.reason) for option in visible],
    }
    if only is None:
        data |= {"answer": course_line(question.formatted_answer), "message": course_elements(question.explanation)}
    return data


def _tensor(tensor: Tensor, message: str) -> dict[str, Any]:
    """Return the first rows of the learner's tensor, and how it compares with the walk's."""
    width = tensor.shape[-1] if tensor.dim() else 1
    rows = tensor.detach().reshape(-1, width) if width else tensor.reshape(0, 1)
    is_integer = not tensor.is_floating_point()
    first = rows[:MAX_ROWS, :MAX_CHANNELS]
    labels = itertools.islice(itertools.product(*map(range, tensor.shape[:-1])), MAX_ROWS)
    hidden = f" Rows not shown: {len(rows) - MAX_ROWS:,}." if len(rows) > MAX_ROWS else ""
    return {
        "shape": list(tensor.shape),
        "dtype": dtype_name(tensor.dtype),
        "is_integer": is_integer,
        "rows": plain((first.long() if is_integer else first.double()).tolist()),
        "labels": [",".join(map(str, label)) for label in labels],
        "more": max(0, rows.shape[1] - MAX_CHANNELS),
        "note": f"{message}{hidden}",
    }
