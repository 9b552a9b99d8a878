"""The API: addresses, each a question to the library and its facts as JSON; those of the course are in learn.py.

asked -> [api] -> Line -> facts -> JSON
- a model is one of those named at start; nothing a request says is opened, looked up or fetched by name
- answers are made in threads and kept; whatever the library refuses is status 400 with its own line
- a client that goes takes its question along, unless it is being answered already
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from inlayer.errors import InlayerError, InputError
from inlayer.paths import quoted
from inlayer.trace import Change, Pipeline
from inlayer.trace.backward import MAX_HEAD_VALUES
from inlayer.trace.html import content_security_policy, page
from inlayer.web.course import CoursePages
from inlayer.web.guard import Guard, error_body, read_body
from inlayer.web.handlers import encode, until_left
from inlayer.web.learn import Learn
from inlayer.web.openapi import describe
from inlayer.web.routes import find_places, without_places
from inlayer.web.schemas import InitializationAsked, Limits, RefusedError, TokenAsked, WalkAsked, read_query, read_walk
from inlayer.web.workers import Answers, LeftError, Workers

__all__ = ["Api", "make_app"]

THREADS = 2
WAITING = 512  # requests; with more of them an answer would come too late to be of use
KEPT = 32 << 20  # bytes of answers
LARGE = 2**31  # values of a table x tokens that pass its head: the better part of a second
SEARCH = 32  # tokens whose walk takes as long as the search for one row's neighbors
TITLE = "inlayer walk"


def make_app(
    lines: Mapping[str, Pipeline],
    *,
    token: str,
    hosts: tuple[str, ...] = (),
    limits: Limits | None = None,
    runs_code: bool = False,
) -> Guard:
    """The ASGI application: these models, for whoever shows this token.

    runs_code  may whoever shows it run code on this machine, in the tasks of the course?
    """
    api = Api(lines, Limits() if limits is None else limits, runs_code=runs_code)
    return Guard(api.app, token=token, hosts=hosts)


class Api:
    """What the guard lets through; to be closed by whoever stops the server."""

    def __init__(self, lines: Mapping[str, Pipeline], limits: Limits, *, runs_code: bool = False) -> None:
        if not lines:
            raise InputError("there is no model to serve; name at least one")
        self.lines, self.limits = dict(lines), limits
        self.workers, self.answers = Workers(THREADS, WAITING), Answers(KEPT)
        models = [replace(line.facts(), name=name, source=line.title) for name, line in self.lines.items()]
        self.places = find_places(self.lines.values())
        self.models = encode({"models": models})
        self.page = page(title=TITLE, data=None, served=True).encode("utf-8")
        self.page_policy = content_security_policy(served=True)
        self.learn = Learn(CoursePages(runs=runs_code), limits)
        self.description = encode(describe(limits, list(self.lines)))
        self.app = Starlette(
            routes=[
                Route("/", self.get_page),
                Route("/api/models", self.get_models),
                Route("/api/walk", self.post_walk, methods=["POST"]),
                Route("/api/token", self.get_token),
                Route("/api/initialization", self.get_initialization),
                Route("/api/openapi.json", self.get_openapi),
                *self.learn.routes,
            ],
            exception_handlers={
                HTTPException: _not_here,
                InlayerError: self._bad_value,
                RefusedError: _refused,
                LeftError: _left,
                Exception: _failed,
            },
        )
        self.app.router.redirect_slashes = False  # a redirect would repeat the token

    async def get_page(self, _: Request) -> Response:
        # It may stand in a frame of this very server, beside a lesson; the policy says the same.
        headers = {"content-security-policy": self.page_policy, "x-frame-options": "SAMEORIGIN"}
        return Response(self.page, media_type="text/html", headers=headers)

    async def get_models(self, _: Request) -> Response:
        return _json(self.models)

    async def get_openapi(self, _: Request) -> Response:
        return _json(self.description)

    async def post_walk(self, request: Request) -> Response:
        body = await read_body(request.scope, request.receive, self.limits.body)
        asked = read_walk(body, self.limits)
        line = self._line(asked.model)
        heads = line.values() <= MAX_HEAD_VALUES  # with a larger one a walk leaves out what takes long
        large = _is_large(line, len(asked.texts) * asked.tokens if heads else 0)
        return await self._answer(request, asked, len(body), lambda: _walk(line, asked), large)

    async def get_token(self, request: Request) -> Response:
        query = request.scope["query_string"]
        asked = read_query(query, TokenAsked, self.limits)
        line = self._line(asked.model)
        large = _is_large(line, SEARCH)
        return await self._answer(request, asked, len(query), lambda: line.token(asked.id, k=asked.k), large)

    async def get_initialization(self, request: Request) -> Response:
        query = request.scope["query_string"]
        asked = read_query(query, InitializationAsked, self.limits)
        line = self._line(asked.model)
        return await self._answer(
            request, asked, len(query), lambda: line.initialization(seed=asked.seed, dims=asked.dims)
        )

    def _line(self, name: str | None) -> Pipeline:
        if name is None:
            return next(iter(self.lines.values()))
        if name not in self.lines:
            named = ", ".join(map(quoted, self.lines))
            raise InputError(f"model is {quoted(name)}; those named when the server started are {named}")
        return self.lines[name]

    async def _answer(
        self,
        request: Request,
        asked: WalkAsked | TokenAsked | InitializationAsked,
        size: int,
        make: Callable[[], Any],
        large: bool = False,
    ) -> Response:
        answer = self.answers.get(asked)
        if answer is None:
            left = asyncio.ensure_future(until_left(request.receive))
            try:
                answer = await self.workers.run(lambda: encode(make()), left, large=large)
            finally:
                left.cancel()
            self.answers.put(asked, answer, size)
        return _json(answer)

    def close(self, patience: float) -> bool:
        """Take no more work. Have all threads ended after so many seconds?"""
        return all([self.workers.close(patience), self.learn.close(patience)])

    async def _bad_value(self, _: Request, error: Exception) -> Response:
        return _json(error_body(without_places(str(error), self.places)), 400)


def _is_large(line: Pipeline, tokens: int) -> bool:
    """Is it more work than others should wait for? What waits for the network may be."""
    return line.table.remote or line.values() * tokens > LARGE


def _walk(line: Pipeline, asked: WalkAsked) -> Any:
    change = Change(positions=asked.positions, theta=asked.theta, swap=asked.swap, pad=asked.pad)
    trace = line.walk(list(asked.texts), dims=asked.dims, tokens=asked.tokens, change=change)
    return replace(trace, source=line.title)


def _json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {})["Allow"]
        message = f"{quoted(request.method)} is not for {quoted(request.url.path)}; it takes {allowed}"
    else:
        message = f"nothing is at {quoted(request.url.path)}; /api/openapi.json lists what is"
    return _json(error_body(message), error.status_code, error.headers)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _json(error_body(str(error)), error.status, error.headers)


async def _left(_: Request, error: Exception) -> Response:
    """Nobody reads it, but every request ends with an answer."""
    del error
    return _json(error_body("the client left before the answer was there"), 400)


async def _failed(_: Request, error: Exception) -> Response:
    """The guard logs it: Starlette raises it again after this answer."""
    del error
    return _json(error_body("something went wrong here; the server's own output says what"), 500)
