"""The work of the server: a few threads, a line of bounded length before them, and a store of answers.

- threads, because torch and the tokenizers let go of the interpreter, and because the event loop has to stay free
- torch keeps its own number of threads in them: with another one, sums differ in their last bits from the library's
- they are daemons: a model on the network may keep one for long, and Ctrl-C does not wait for it
- the store holds encoded answers, the least used go first; its bound is in bytes, for answers differ a thousandfold
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

from inlayer.web.asked import RefusedError

__all__ = ["Answers", "Workers"]

OVERHEAD = 1_024  # bytes of an entry beside its answer
Job = tuple[Callable[[], bytes], "asyncio.Future[bytes]"]


class Workers:
    """Threads that make answers. `run` is for the event loop, `close` for anyone."""

    def __init__(self, threads: int, waiting: int) -> None:
        self._line: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._waiting, self._most = 0, waiting
        self._threads = [
            threading.Thread(target=self._work, name=f"inlayer-walk-{number}", daemon=True) for number in range(threads)
        ]
        self._closed = False

    async def run(self, call: Callable[[], bytes]) -> bytes:
        """What the call returns or raises, from a thread."""
        if self._waiting >= self._most:
            raise RefusedError(
                503, f"{self._waiting} requests are waiting already; try again in a moment", Retry_After="1"
            )
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        for thread in self._threads:
            if thread.ident is None:
                thread.start()
        self._waiting += 1
        self._line.put((call, future))
        try:
            return await future
        finally:
            self._waiting -= 1

    def _work(self) -> None:
        while (job := self._line.get()) is not None and not self._closed:
            call, future = job
            if future.cancelled():
                continue
            result: bytes | BaseException
            try:
                result = call()
            except BaseException as error:
                # What a future cannot carry: whoever waits must hear of it all the same.
                odd = isinstance(error, StopIteration) or not isinstance(error, Exception)
                result = RuntimeError(f"the work ended by {error!r}") if odd else error
            with contextlib.suppress(RuntimeError):  # the event loop is gone: nobody waits
                future.get_loop().call_soon_threadsafe(_settle, future, result)
            del job, call, future, result  # an answer is not kept while waiting for the next question

    def close(self, patience: float) -> bool:
        """Take no more work. Have all threads ended after so many seconds?"""
        self._closed = True
        for _ in self._threads:
            self._line.put(None)
        end = time.monotonic() + patience
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in started)


def _settle(future: asyncio.Future[bytes], result: bytes | BaseException) -> None:
    if future.done():  # cancelled: the server stops
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
