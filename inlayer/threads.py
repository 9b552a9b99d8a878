"""Base module: threads that use all cores, and processes that end with the process that started them.

- threads are sufficient, because numpy and the tokenizer libraries release the GIL
- OMP_NUM_THREADS also limits these threads: Ray sets it to 1 for a worker with one of many cores
Tested in tests/test_threads.py.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock, Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")
_BLAS_LIMIT = Lock()


def core_count() -> int:
    """Return the number of cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdecimal() and int(limit) > 0 else cores


def map_in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the results of a function for a few items, with one thread per item. Raises the first error.

    After an error or Ctrl-C, this does not wait for the other threads; they end when the process does, at the latest.
    """
    if len(items) <= 1:
        return [function(item) for item in items]
    return [future.result() for future in [in_thread(function, item) for item in items]]


def in_thread(function: Callable[[Item], Result], item: Item, name: str | None = None) -> Future[Result]:
    """Start a function in a thread that does not keep the process alive."""
    future = Future[Result]()

    def run() -> None:
        try:
            future.set_result(function(item))
        except BaseException as error:  # re-raised when the result is read
            future.set_exception(error)

    Thread(target=run, name=name, daemon=True).start()
    return future


def on_parent_exit(action: Callable[[], object]) -> None:
    """Call a function when the parent process ends, even by SIGKILL."""
    from multiprocessing.connection import wait

    if (parent := multiprocessing.parent_process()) is not None:
        sentinel = parent.sentinel

        def watch() -> None:
            wait([sentinel])
            action()

        Thread(target=watch, name="inlayer-parent", daemon=True).start()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread per matrix product, for code that already computes one product per core.

    The number of BLAS threads is a process-wide setting, so only one such block runs at a time.
    """
    from threadpoolctl import threadpool_limits

    with _BLAS_LIMIT, threadpool_limits(1, user_api="blas"):
        yield
