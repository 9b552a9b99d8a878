"""Worker threads: a bounded number of threads for work that must not block the event loop.

- threads are daemons, because a remote model may block one for minutes, and Ctrl-C must not wait for it
- threads are reused, because starting one blocks the event loop until it runs, a fifth of the loop's time under load
- a request whose client disconnects leaves the queue; a job that has started runs to completion
- `add_route` turns a library function into a route: its parameters are the request, and its result is the response
Tested in tests/web/test_worker_threads.py.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from fastapi import FastAPI
from fastapi.responses import Response
from pydantic_core import to_json as write_json
from starlette.exceptions import HTTPException
from starlette.requests import Request

from inlayer.facts_base import to_json

T = TypeVar("T")


class WorkerThreads:
    """Runs calls in at most `threads` threads, with at most `queue` calls waiting."""

    def __init__(self, threads: int, queue: int) -> None:
        self._free, self._queue, self._waiting = asyncio.Semaphore(threads), queue, 0
        self._work = SimpleQueue[Callable[[], None]]()
        for _ in range(threads):
            threading.Thread(target=self._work_forever, name="inlayer-job", daemon=True).start()

    async def run(self, call: Callable[[], T], request: Request) -> T:
        """Return the result of a call, or raise its exception. Stops waiting when the client disconnects."""
        if self._waiting >= self._queue:
            message = f"{self._waiting} requests are already waiting; try again in a moment"
            raise HTTPException(503, message, {"Retry-After": "1"})
        job = asyncio.ensure_future(self._run(call))
        gone = asyncio.ensure_future(until_disconnect(request))
        try:
            await asyncio.wait({job, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not job.done():
                raise HTTPException(499, "the client disconnected before the response was ready")
            return job.result()
        finally:
            gone.cancel()
            job.cancel()  # leaves the queue; a thread that has started is not interrupted

    async def _run(self, call: Callable[[], T]) -> T:
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        loop, result = asyncio.get_running_loop(), Future[T]()
        result.set_running_or_notify_cancel()  # it can no longer be cancelled

        def work() -> None:
            try:
                result.set_result(call())
            except Exception as error:
                result.set_exception(error)
            with suppress(RuntimeError):  # the event loop is closed: nobody is waiting
                loop.call_soon_threadsafe(self._free.release)

        self._work.put(work)
        return await asyncio.wrap_future(result)

    def _work_forever(self) -> None:
        while True:
            self._work.get()()


def as_json(value: Any) -> bytes | str:
    """A faster `to_json`: the same values in half the time, though pydantic-core writes 1e-06 as 1e-6."""
    try:
        body = write_json(value)
    except ValueError:  # a file name that is not valid Unicode
        return to_json(value)
    return to_json(value) if b"NaN" in body or b"Infinity" in body else body  # harmless but slow if in a text


async def until_disconnect(request: Request) -> None:
    """Wait until the client closes the connection; its body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def add_route(
    app: FastAPI, route: str, call: Callable[..., Any], threads: WorkerThreads | Callable[..., WorkerThreads]
) -> None:
    """Add a route such as "GET /api/models". It runs `call` in a thread and returns the result as JSON.

    FastAPI documents and validates the route by the signature of `call`. `threads` run it, or are a function
    that takes the same arguments and chooses the threads.
    """

    async def endpoint(request: Request, **arguments: Any) -> Response:
        chosen = threads if isinstance(threads, WorkerThreads) else threads(**arguments)
        body = await chosen.run(lambda: as_json(call(**arguments)), request)
        return Response(body, media_type="application/json")

    method, path = route.split()
    signature = inspect.signature(call, eval_str=True)
    request = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), request], return_annotation=Response
    )
    responses: dict[int | str, dict[str, Any]] = {200: {"model": signature.return_annotation}}
    app.add_api_route(
        path, endpoint, methods=[method], name=call.__name__, description=call.__doc__, responses=responses
    )
