"""The work of the server: a few threads, a line of bounded length before them, and a store of answers.

- threads, because torch and the tokenizers let go of the interpreter, and because the event loop has to stay free
- they are daemons: a model on the network may keep one for long, and Ctrl-C does not wait for it
- large work is done by the last thread alone: small work never waits for it, and the memory it takes is taken once
- what nobody waits for any more leaves the line; what has begun cannot be stopped
- the store holds encoded answers, the least used go first; its bound is in bytes, for answers differ a thousandfold
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import NamedTuple

from inlayer.web.schemas import RefusedError

__all__ = ["Answers", "LeftError", "Workers"]

OVERHEAD = 1_024  # bytes of an entry beside its answer


class LeftError(Exception):
    """Whoever asked has gone."""


class Job(NamedTuple):
    """A call, and whether it is a large one."""

    call: Callable[[], bytes]
    large: bool


class Workers:
    """Threads that make answers. `run` is for the event loop, `close` for anyone."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._line: dict[asyncio.Future[bytes], Job] = {}  # in the order they came
        self._changed, self._most = threading.Condition(), waiting
        self._threads = [
            threading.Thread(
                target=self._work, args=[number == threads - 1], name=f"inlayer-walk-{number}", daemon=True
            )
            for number in range(threads)
        ]
        self._closed = False

    async def run(self, call: Callable[[], bytes], left: asyncio.Future[None], *, large: bool = False) -> bytes:
        """What the call returns or raises, from a thread; LeftError as soon as `left` is done."""
        if (waiting := len(self._line)) >= self._most:
            raise RefusedError(503, f"{waiting} requests are waiting already; try again in a moment", Retry_After="1")
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        left.add_done_callback(lambda _: future.cancel())
        for thread in self._threads:
            if thread.ident is None:
                thread.start()
        with self._changed:
            self._line[future] = Job(call, large)
            self._changed.notify_all()
        try:
            return await future
        except asyncio.CancelledError:
            if left.done() and not left.cancelled():
                raise LeftError from None
            raise  # the server stops
        finally:
            with self._changed:
                self._line.pop(future, None)

    def _work(self, takes_large: bool) -> None:
        while (taken := self._take(takes_large)) is not None:
            call, future = taken
            result: bytes | BaseException
            try:
                result = call()
            except BaseException as error:
                # What a future cannot carry: whoever waits must hear of it all the same.
                odd = isinstance(error, StopIteration) or not isinstance(error, Exception)
                result = RuntimeError(f"the work ended by {error!r}") if odd else error
            with contextlib.suppress(RuntimeError):  # the event loop is gone: nobody waits
                future.get_loop().call_soon_threadsafe(_settle, future, result)
            del taken, call, future, result  # an answer is not kept while waiting for the next question

    def _take(self, takes_large: bool) -> tuple[Callable[[], bytes], asyncio.Future[bytes]] | None:
        """The first in line for this thread, once there is one; None when all is closed."""
        with self._changed:
            while not self._closed:
                for future, job in self._line.items():
                    if (takes_large or not job.large) and not future.cancelled():
                        del self._line[future]
                        return job.call, future
                self._changed.wait()
        return None

    def close(self, patience: float) -> bool:
        """Take no more work. Have all threads ended after so many seconds?"""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        end = time.monotonic() + patience
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in started)


def _settle(future: asyncio.Future[bytes], result: bytes | BaseException) -> None:
    if future.done():  # canceled: nobody waits
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


class Answers:
    """Encoded answers by their questions. Used by the event loop alone, so it needs no lock."""

    def __init__(self, most: int) -> None:
        self._kept: OrderedDict[Hashable, tuple[bytes, int]] = OrderedDict()
        self._size, self._most = 0, most

    def get(self, question: Hashable) -> bytes | None:
        """The answer, if it is still here."""
        if question not in self._kept:
            return None
        self._kept.move_to_end(question)
        return self._kept[question][0]

    def put(self, question: Hashable, answer: bytes, asked: int) -> None:
        """Keep it; let go of those that were not asked for longest. `asked` is the size of the question in bytes."""
        _, before = self._kept.pop(question, (b"", 0))
        size = len(answer) + 4 * asked + OVERHEAD  # Python keeps a character in up to four bytes
        self._kept[question] = answer, size
        self._size += size - before
        while self._size > self._most:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._size -= dropped
