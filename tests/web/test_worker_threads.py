"""Worker threads: a bounded number, a bounded queue, and clients that disconnect."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from starlette.exceptions import HTTPException
from starlette.requests import Request

from inlayer.errors import InputError
from inlayer.web.worker_threads import WorkerThreads

TIMEOUT = 300.0


def request(disconnected: asyncio.Event | None = None) -> Request:
    async def receive() -> Any:
        await (disconnected or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    return Request({"type": "http", "method": "GET", "headers": []}, receive)


def test_returns_results_and_raises_errors() -> None:
    async def main() -> None:
        threads = WorkerThreads(1, 4)
        assert await threads.run(lambda: 7, request()) == 7
        with pytest.raises(InputError, match="no"):
            await threads.run(lambda: (_ for _ in ()).throw(InputError("no")), request())

    asyncio.run(main())


def test_no_more_than_the_given_threads_run() -> None:
    running, most, lock, go = 0, 0, threading.Lock(), threading.Event()

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        go.wait(TIMEOUT)
        with lock:
            running -= 1

    async def main() -> None:
        threads = WorkerThreads(2, 10)
        tasks = [asyncio.ensure_future(threads.run(work, request())) for _ in range(6)]
        while running < 2:
            await asyncio.sleep(0.01)
        go.set()
        await asyncio.gather(*tasks)

    asyncio.run(main())
    assert most == 2


def test_a_full_queue_is_503_and_a_disconnected_client_leaves_it() -> None:
    go, calls = threading.Event(), []

    async def main() -> None:
        threads, gone = WorkerThreads(1, 1), asyncio.Event()
        busy = asyncio.ensure_future(threads.run(lambda: go.wait(TIMEOUT), request()))
        await asyncio.sleep(0.05)
        waiting = asyncio.ensure_future(threads.run(lambda: calls.append("waiting"), request(gone)))
        await asyncio.sleep(0.05)
        with pytest.raises(HTTPException) as full:
            await threads.run(lambda: None, request())
        assert full.value.status_code == 503
        gone.set()
        with pytest.raises(HTTPException) as left:
            await waiting
        assert left.value.status_code == 499
        go.set()
        await busy
        assert await threads.run(lambda: "next", request()) == "next"

    asyncio.run(main())
    assert calls == []  # never started


def test_the_thread_of_a_disconnected_client_still_counts() -> None:
    go = threading.Event()

    async def main() -> None:
        threads, gone = WorkerThreads(1, 4), asyncio.Event()
        started = threading.Event()
        left = asyncio.ensure_future(threads.run(lambda: (started.set(), go.wait(TIMEOUT)), request(gone)))
        while not started.is_set():
            await asyncio.sleep(0.01)
        gone.set()
        with pytest.raises(HTTPException):
            await left
        following = asyncio.ensure_future(threads.run(lambda: "done", request()))
        await asyncio.sleep(0.1)
        assert not following.done()  # one thread, and it is still busy
        go.set()
        assert await following == "done"

    asyncio.run(main())
