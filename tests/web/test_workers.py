"""The work of the server: kept answers have bounds, what nobody waits for is not made, small goes past large."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from inlayer.trace import Pipeline, Trace
from inlayer.web.workers import Answers, LeftError, Workers
from tests.web.client import PATIENCE, TOKEN, Place, running

# ---- the store of answers


def in_a_loop(work: Coroutine[Any, Any, None]) -> None:
    """In a thread of its own: Playwright keeps a loop running in the main one once a browser was started."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result(PATIENCE)


def test_answers_are_bounded_and_the_least_used_go() -> None:
    answers = Answers(20_000)
    for number in range(10):
        answers.put(number, b"x" * 4_000, 0)
        assert answers._size <= 20_000
        assert answers.get(0) is not None  # asked for each time, so it stays
    assert [number for number in range(10) if answers.get(number) is not None] == [0, 8, 9]
    answers.put("large", b"x" * 30_000, 0)
    assert answers.get("large") is None
    assert (answers._size, len(answers._kept)) == (0, 0)
    answers.put("question", b"x", 10_000)  # a long question counts too
    assert answers._size == 0
    answers.put("again", b"x" * 10, 0)
    answers.put("again", b"x" * 20, 0)
    assert answers._size == 20 + 1_024
    assert answers.get("again") == b"x" * 20


def test_an_answer_comes_from_its_thread_or_its_error_does() -> None:
    def stop() -> Any:
        raise StopIteration

    def leave() -> Any:
        raise SystemExit

    async def ask_all() -> None:
        workers, stays = Workers(2, 10), asyncio.get_running_loop().create_future()
        assert await workers.run(lambda: b"x", stays) == b"x"
        for call in (stop, leave):
            with pytest.raises(RuntimeError):
                await workers.run(call, stays)
        assert await workers.run(lambda: b"y", stays) == b"y"  # the threads live on
        assert workers.close(PATIENCE)

    in_a_loop(ask_all())


def test_who_leaves_is_not_waited_for() -> None:
    done: list[str] = []
    began, go_on = threading.Event(), threading.Event()

    def hold() -> bytes:
        began.set()
        go_on.wait(PATIENCE)
        done.append("held")
        return b""

    def make(name: str) -> Callable[[], bytes]:
        return lambda: done.append(name) or b""  # type: ignore[func-returns-value]

    async def ask_all() -> None:
        loop = asyncio.get_running_loop()
        workers, left, stays = Workers(1, 10), loop.create_future(), loop.create_future()
        asked = [asyncio.ensure_future(workers.run(call, left)) for call in (hold, make("a"), make("b"))]
        kept = asyncio.ensure_future(workers.run(make("c"), stays))
        while not began.is_set():
            await asyncio.sleep(0.01)
        left.set_result(None)
        for one in asked:
            with pytest.raises(LeftError):
                await one
        assert len(workers._line) == 1  # nothing of them is kept either
        go_on.set()
        await kept
        assert workers.close(PATIENCE)

    in_a_loop(ask_all())
    assert done == ["held", "c"]


# ---- clients that leave, and large walks


class Held(Pipeline):
    """A line whose walks of "wait..." end when they are let go."""

    def walk(self, texts: Any, **options: Any) -> Trace:
        self.walked.append(texts[0])
        if texts[0].startswith("wait"):
            self.began.release()
            assert self.go_on.wait(PATIENCE)
        return super().walk(texts, **options)


@pytest.fixture
def held(line: Pipeline) -> Held:
    made = Held.__new__(Held)
    made.__dict__.update(line.__dict__)
    made.walked, made.began, made.go_on = [], threading.Semaphore(0), threading.Event()
    return made


def begin(place: Place, said: Any) -> socket.socket:
    """A request that is sent and not waited for."""
    body = json.dumps(said).encode()
    connection = socket.create_connection((place.host, place.port), timeout=PATIENCE)
    connection.sendall(
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return connection


def until(happens: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_abandoned_walks_are_never_made(held: Held, caplog: pytest.LogCaptureFixture) -> None:
    with running({"default": held}) as (place, api):
        busy = [begin(place, {"texts": [f"wait {number}"]}) for number in range(2)]
        for _ in busy:
            assert held.began.acquire(timeout=PATIENCE)
        abandoned = [begin(place, {"texts": [f"gone {number}"]}) for number in range(10)]
        until(lambda: len(api.workers._line) == 10)
        for connection in (*busy, *abandoned):
            connection.close()
        until(lambda: len(api.workers._line) == 0)
        held.go_on.set()
        assert place.ask("/api/walk", {"texts": ["Hi"]}).status == 200
    assert sorted(held.walked) == ["Hi", "wait 0", "wait 1"]
    assert caplog.text == ""


def test_small_walks_do_not_wait_for_large_ones(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.web.api.LARGE", held.values() * 64)
    with running({"default": held}) as (place, _):
        large = [begin(place, {"texts": [f"wait {number}"], "tokens": 65}) for number in range(3)]
        assert held.began.acquire(timeout=PATIENCE)
        for number in range(3):
            assert place.ask("/api/walk", {"texts": [f"Hi {number}"], "tokens": 64}).status == 200
        assert sum(text.startswith("wait") for text in held.walked) == 1  # one at a time
        held.go_on.set()
        for connection in large:
            assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
            connection.close()
