"""Routes of the course: its page, and what the page shows and does.

page -> guard -> [course] -> CourseService
- everything reads or writes files, so it runs in threads (jobs.py); grading has threads of its own
- code is run and files are written only if nobody but this machine can reach the server; others may read and answer
- an answer reaches the page only after the learner has given one, or asked to see it
Tested in tests/web/test_course.py.
"""

from __future__ import annotations

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
from inlayer.learn.course import Lesson, Question, Task
from inlayer.learn.course_steps import CourseStep, LessonStatus
from inlayer.learn.html import learn_page, learn_policy
from inlayer.learn.links import course_elements, course_line
from inlayer.learn.progress import ProgressFile
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion
from inlayer.learn.quiz import quiz_questions, shuffle_options
from inlayer.learn.service import CourseService, DrawnExercise, ReadOnlyError, random_seed
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
    """Add the course to an application."""
    view = CourseView(read_only=not runs_code)
    reading, grading = Jobs(READING_THREADS, READING_QUEUE), Jobs(GRADING_THREADS, GRADING_QUEUE)

    async def run(request: Request, call: Callable[[], Any], jobs: Jobs = reading) -> Response:
        body = await jobs.run(lambda: to_json(call()), request)
        return Response(body, media_type="application/json")

    @app.get("/learn", include_in_schema=False)
    async def get_page() -> Response:
        nonce = secrets.token_urlsafe(18)
        headers = {"content-security-policy": learn_policy(nonce)}
        return Response(learn_page(nonce), media_type="text/html", headers=headers)

    @app.get("/api/course")
    async def get_course(request: Request) -> Response:
        """List the lessons with the learner's progress."""
        return await run(request, view.overview)

    @app.get("/api/course/lesson")
    async def get_lesson(query: Annotated[LessonQuery, Query()], request: Request) -> Response:
        """Return a lesson: its text, tasks, exercises and quiz questions."""
        return await run(request, lambda: view.lesson(query.id))

    @app.get("/api/course/misconceptions")
    async def get_misconceptions(request: Request) -> Response:
        """Return the page of common misconceptions."""
        return await run(request, view.misconceptions)

    @app.get("/api/course/exercise")
    async def get_exercise(query: Annotated[ExerciseQuery, Query()], request: Request) -> Response:
        """Return an exercise with the numbers of a seed."""
        return await run(request, lambda: view.exercise(view.draw(query.id, query.seed)))

    @app.get("/api/course/file")
    async def get_file(query: Annotated[TaskRequest, Query()], request: Request) -> Response:
        """Return the learner's file for a task, or the start file."""
        return await run(request, lambda: view.file(query.task))

    @app.post("/api/course/check")
    async def post_check(body: CodeRequest, request: Request) -> Response:
        """Save code as the learner's file and grade it."""
        return await run(request, lambda: view.check(body), grading)

    @app.post("/api/course/save")
    async def post_save(body: CodeRequest, request: Request) -> Response:
        """Save code as the learner's file."""
        return await run(request, lambda: {"digest": view.save(body)})

    @app.post("/api/course/reset")
    async def post_reset(body: ResetRequest, request: Request) -> Response:
        """Restore a task's start file; the old file is kept."""
        return await run(request, lambda: view.reset(body))

    @app.post("/api/course/hint")
    async def post_hint(body: TaskRequest, request: Request) -> Response:
        """Return the hints shown so far and the next one."""
        return await run(request, lambda: view.hints(body.task))

    @app.post("/api/course/solution")
    async def post_solution(body: TaskRequest, request: Request) -> Response:
        """Return a solution and why it works."""
        return await run(request, lambda: view.solution(body.task))

    @app.post("/api/course/answer")
    async def post_answer(body: AnswerRequest, request: Request) -> Response:
        """Grade an answer to an exercise or a quiz question."""
        return await run(request, lambda: view.answer(body))

    @app.post("/api/course/read")
    async def post_read(body: ReadRequest, request: Request) -> Response:
        """Record that a lesson was read."""
        return await run(request, lambda: view.mark_read(body.lesson))

    @app.post("/api/course/skip")
    async def post_skip(body: SkipRequest, request: Request) -> Response:
        """Skip a step of the course."""
        return await run(request, lambda: {"skipped": view.service.skip(body.step)})

    @app.exception_handler(ReadOnlyError)
    async def read_only(_: Request, error: Exception) -> Response:
        del error
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
        overview = self.service.overview()
        return {
            "lessons": [_lesson_status(one) for one in overview.lessons],
            "next": None if overview.next_step is None else _location(overview.next_step),
            "runs_code": not self.read_only,
            "read_only_message": READ_ONLY if self.read_only else "",
            "notices": list(self.notices),
        }

    def lesson(self, name: str) -> dict[str, Any]:
        lesson, state = self.service.course.lesson(name), self.service.state()
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
                {**self.exercise(self.draw(one.id, random_seed())), "done": bool(record.done)}
                for one, record in zip(lesson.exercises, status.exercises, strict=True)
            ],
            "questions": [
                _question(one, random_seed(), state.question(one.id).due)
                for one in quiz_questions(self.service.course, state, lesson)
            ],
        }  # fmt: skip

    def misconceptions(self) -> dict[str, Any]:
        page = self.service.course.misconceptions
        return {"title": page.title, "text": course_elements(page.body)}

    def draw(self, name: str, seed: int) -> DrawnExercise:
        exercise = self.service.exercise(name)
        return DrawnExercise(exercise=exercise, question=exercise.ask(seed), seed=seed)

    def exercise(self, drawn: DrawnExercise) -> dict[str, Any]:
        """Show an exercise without its answer."""
        question = drawn.question
        options = question.options if isinstance(question, ChoiceQuestion) else ()
        return {
            "id": drawn.exercise.id,
            "title": drawn.exercise.title,
            "kind": question.kind,
            "seed": drawn.seed,
            "text": course_elements(question.text),
            "unit": question.unit if isinstance(question, NumberQuestion) else "",
            "is_shape": isinstance(question, NumberQuestion) and isinstance(question.answer, tuple),
            "options": [course_line(option.text) for option in options],
        }

    def mark_read(self, name: str) -> dict[str, Any]:
        self.service.require_writable()
        self.service.mark_read(self.service.course.lesson(name))
        return {}

    # ---- answers

    def answer(self, body: AnswerRequest) -> dict[str, Any]:
        if body.question is not None:
            return self._answer_question(body, self.service.question(body.question))
        drawn = self.draw(body.exercise or "", body.seed)
        if body.reveal:
            return self._reveal(drawn)
        if isinstance(drawn.question, FreeTextQuestion):
            if body.matches_model:
                self.service.record_exercise(drawn.exercise, correct=True)
                return {"correct": True}
            points = [course_line(one) for one in drawn.question.points]
            return {"correct": None, "model_answer": course_elements(drawn.question.model_answer), "points": points}
        if body.matches_model:
            raise InputError(f"{drawn.exercise.id} is graded; send an answer")
        try:
            result = self.service.answer_exercise(drawn, body.answer)
        except InputError as error:  # a typing error, which does not count as a try
            return {"correct": False, "is_valid": False, "message": [["p", {}, [str(error)]]]}
        return {"correct": result.correct, "is_valid": True, "message": course_elements(result.message)}

    def _reveal(self, drawn: DrawnExercise) -> dict[str, Any]:
        self.service.reveal_answer(drawn)
        question = drawn.question
        options = question.options if isinstance(question, ChoiceQuestion) else ()
        if isinstance(question, NumberQuestion):
            answer = question.formatted_answer
        else:
            answer = next(option.text for option in options if option.correct)
        assert not isinstance(question, FreeTextQuestion)
        return {
            "correct": None,
            "answer": course_line(answer),
            "message": course_elements(question.explanation),
            "option_results": [option.correct for option in options],
            "reasons": [course_line(option.reason) for option in options],
        }

    def _answer_question(self, body: AnswerRequest, question: Question) -> dict[str, Any]:
        """Grade an option. A wrong one gets its reason and the question again; a correct one gets every reason."""
        choice, result = self.service.answer_question(question, body.seed, body.answer, repeated=body.repeated)
        chosen = ord(body.answer.strip().lower()[0]) - ord("a")
        shown_options = [
            option if result.correct or number == chosen else None for number, option in enumerate(choice.options)
        ]
        return {
            "correct": result.correct,
            "option_results": [None if option is None else option.correct for option in shown_options],
            "reasons": [None if option is None else course_line(option.reason) for option in shown_options],
            "next_try": None if result.correct else _question(question, random_seed(), 0),
        }

    # ---- the learner's file

    def file(self, name: str) -> dict[str, Any]:
        task = self.service.course.task(name)
        if self.read_only:
            return {"code": task.start, "digest": None, "path": ""}
        self._warm_up()
        path, source = self.service.load_file(task)
        code, digest = (task.start, None) if source is None else (source.text, source.digest)
        return {"code": code, "digest": digest, "path": shown(path)}

    def save(self, body: CodeRequest) -> str:
        return self.service.save_file(self.service.course.task(body.task), body.code, body.loaded)

    def reset(self, body: ResetRequest) -> dict[str, Any]:
        kept = self.service.reset_file(self.service.course.task(body.task), loaded=body.loaded)
        return {**self.file(body.task), "kept": "" if kept is None else kept.name}

    def check(self, body: CodeRequest) -> dict[str, Any]:
        task = self.service.course.task(body.task)
        digest = self.save(body)
        verdict = self.service.check(task, body.code)
        return {**self._verdict(verdict, task), "digest": digest}

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

    def hints(self, name: str) -> dict[str, Any]:
        task = self.service.course.task(name)
        shown_hints = task.hints if self.read_only else task.hints[: self.service.hint(task).level]
        return {"hints": [course_elements(text) for text in shown_hints]}

    def solution(self, name: str) -> dict[str, Any]:
        task = self.service.course.task(name)
        self.service.record_solution(task)
        return {"solution": course_elements(f"```python\n{task.solution}```"), "why": course_elements(task.why)}

    def _warm_up(self) -> None:
        """Start the fork server while the learner is still reading: it takes seconds, once."""
        if self._warming is None:
            self._warming = threading.Thread(target=_start_fork_server, name="inlayer-fork-server", daemon=True)
            self._warming.start()


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


def _question(question: Question, seed: int, due: int) -> dict[str, Any]:
    choice = shuffle_options(question, seed)
    return {
        "id": question.id,
        "lesson": question.lesson,
        "seed": seed,
        "text": course_elements(choice.text),
        "options": [course_line(option.text) for option in choice.options],
        "due": due,
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
