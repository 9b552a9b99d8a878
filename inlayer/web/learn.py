"""The course over HTTP: its page, and a question to the pages for everything the page shows or does.

page -> guard -> [learn] -> pages -> course, progress, grader
- everything about an address is in `ADDRESSES`: its fields, what answers it, its schema. openapi.py describes the same
- the disk is read in a thread of its own, and code is graded in others, a few at a time, so that neither waits for the
  other and the event loop for none; a client that goes takes his waiting question along
- not here: who may ask (guard.py), what is answered (course.py)
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inlayer.errors import InputError
from inlayer.learn.html import learn_page, learn_policy
from inlayer.web.course import MAX_SEED, CoursePages
from inlayer.web.guard import read_body
from inlayer.web.handlers import encode, until_left
from inlayer.web.schemas import Field, Limits, read_fields
from inlayer.web.workers import Workers

__all__ = ["ADDRESSES", "CHECKS", "CHECKS_WAITING", "PAGE", "Asking", "Learn"]

CHECKS = 2  # graded at once in a process
CHECKS_WAITING = 16
READS_WAITING = 256
PAGE = "/learn"

TASK = Field(example="gather")
CODE = Field(example="def gather(table, ids):\n    return table[ids]\n")
LOADED = Field(needed=False)  # the sum of the file that was loaded; none: there was none
SEED = Field(kind="integer", needed=False, default=0, example=1, most=MAX_SEED)


@dataclass(frozen=True, kw_only=True)
class Asking:
    """An address of the course: the fields it takes, the schema of its answer, and what answers it."""

    path: str
    name: str
    summary: str
    schema: str
    ask: Callable[..., dict[str, Any]]
    method: Literal["GET", "POST"] = "POST"
    fields: Mapping[str, Field]
    grades: bool = False


def _answer(
    pages: CoursePages,
    *,
    exercise: str | None,
    question: str | None,
    seed: int,
    answer: str,
    held: bool,
    again: bool,
    give_away: bool,
) -> dict[str, Any]:
    if (exercise is None) == (question is None):
        raise InputError("give one of the two: an exercise or a question")
    if question is not None:
        return pages.answer_question(question, seed, answer, again=again)
    assert exercise is not None
    if give_away:
        return pages.reveal_answer(exercise, seed)
    return pages.confirm_answer(exercise, seed) if held else pages.answer_exercise(exercise, seed, answer)


ADDRESSES = (
    Asking(
        path="/api/learn", name="course", summary="The course, and what was done of it.", schema="Course", method="GET",
        fields={}, ask=CoursePages.overview,
    ),
    Asking(
        path="/api/learn/lesson", name="lesson", summary="A lesson: its text, tasks, exercises and questions.",
        schema="Lesson", method="GET", fields={"id": Field(example="forward")}, ask=lambda pages, id: pages.lesson(id),
    ),
    Asking(
        path="/api/learn/misconceptions", name="misconceptions", summary="Common misconceptions, with proofs.",
        schema="Misconceptions", method="GET", fields={}, ask=CoursePages.misconceptions,
    ),
    Asking(
        path="/api/learn/exercise", name="exercise", summary="An exercise, as a seed draws it.", schema="Exercise",
        method="GET", fields={"id": Field(example="forward/hidden_shape"), "seed": SEED},
        ask=lambda pages, id, seed: pages.exercise(id, seed),
    ),
    Asking(
        path="/api/learn/file", name="file", summary="The learner's file of a task, or what it begins as.",
        schema="LearnerFile", method="GET", fields={"task": TASK}, ask=lambda pages, task: pages.file(task),
    ),
    Asking(
        path="/api/learn/check", name="check", summary="Keep code as the learner's file, and grade it.",
        schema="Verdict", fields={"task": TASK, "code": CODE, "loaded": LOADED}, grades=True,
        ask=lambda pages, task, code, loaded: pages.check(task, code, loaded),
    ),
    Asking(
        path="/api/learn/save", name="save", summary="Keep code as the learner's file.", schema="Saved",
        fields={"task": TASK, "code": CODE, "loaded": LOADED},
        ask=lambda pages, task, code, loaded: pages.save(task, code, loaded),
    ),
    Asking(
        path="/api/learn/reset", name="reset", summary="Begin a task's file anew; the old one is kept.", schema="Anew",
        fields={"task": TASK, "loaded": LOADED}, ask=lambda pages, task, loaded: pages.reset(task, loaded),
    ),
    Asking(
        path="/api/learn/hint", name="hint", summary="The next hint, after those shown.", schema="Hints",
        fields={"task": TASK}, ask=lambda pages, task: pages.hint(task),
    ),
    Asking(
        path="/api/learn/solution", name="solution", summary="A solution, and why it works.", schema="Solution",
        fields={"task": TASK}, ask=lambda pages, task: pages.solution(task),
    ),
    Asking(
        path="/api/learn/answer", name="answer", schema="Judged",
        summary="Judge the answer to an exercise or to a question of a quiz, or give an exercise's away.",
        fields={
            "exercise": Field(needed=False), "question": Field(needed=False), "seed": SEED,
            "answer": Field(needed=False, default="", example="a"),
            "held": Field(kind="boolean", needed=False, default=False, example=True),
            "again": Field(kind="boolean", needed=False, default=False, example=True),
            "give_away": Field(kind="boolean", needed=False, default=False, example=True),
        },
        ask=_answer,
    ),
    Asking(
        path="/api/learn/read", name="read", summary="Remember that a lesson was read.", schema="Nothing",
        fields={"lesson": Field(example="forward")}, ask=lambda pages, lesson: pages.read(lesson),
    ),
    Asking(
        path="/api/learn/skip", name="skip", summary="Leave a part of the course for later.", schema="Nothing",
        fields={"step": Field(example="task/gather")}, ask=lambda pages, step: pages.skip(step),
    ),
)  # fmt: skip


class Learn:
    """The routes of the course, and the threads behind them."""

    def __init__(self, pages: CoursePages, limits: Limits) -> None:
        self.pages, self.limits = pages, limits
        self.reading, self.grading = Workers(1, READS_WAITING), Workers(CHECKS, CHECKS_WAITING)
        self.routes = [Route(PAGE, self.get_page)]
        self.routes += [Route(one.path, self._answering(one), methods=[one.method]) for one in ADDRESSES]

    async def get_page(self, _: Request) -> Response:
        nonce = secrets.token_urlsafe(18)
        headers = {"content-security-policy": learn_policy(nonce)}
        return Response(learn_page(nonce), media_type="text/html", headers=headers)

    def _answering(self, asking: Asking) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            query = asking.method == "GET"
            given = (
                request.scope["query_string"]
                if query
                else await read_body(request.scope, request.receive, self.limits.body)
            )
            fields = read_fields(given, asking.fields, query=query)
            workers = self.grading if asking.grades and self.pages.runs else self.reading
            left = asyncio.ensure_future(until_left(request.receive))
            try:
                body = await workers.run(lambda: encode(asking.ask(self.pages, **fields)), left)
            finally:
                left.cancel()
            return Response(body, media_type="application/json")

        return answer

    def close(self, patience: float) -> bool:
        """Take no more work. Have all threads ended after so many seconds?"""
        return all([self.reading.close(patience), self.grading.close(patience)])
