"""Twins of the server at the same address: one interpreter uses one core, and a machine has more.

serve -> [twins] -> guard -> api
- forked when the models are open, so that these are in memory once. Only on Linux: elsewhere one process serves alone
- every twin listens with a socket of its own (SO_REUSEPORT), and the system deals out the connections
- a twin ends with the process it comes from, however that ends: it holds one end of a pipe whose other end closes then
- torch runs on one thread in a walk, so that no pool of threads is needed that a fork leaves behind
Checked as a process, and by killing it, in tests/web/test_twins.py.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

__all__ = ["twins"]

MOST = 4  # processes in all; each keeps answers and a little memory of its own
LONGEST_END = 1.0  # seconds until a twin that does not end by itself is killed


def wanted() -> int:
    """How many processes may serve here."""
    return min(MOST, len(os.sched_getaffinity(0))) if sys.platform == "linux" else 1


@contextmanager
def twins(serve: Callable[[int], None]) -> Iterator[None]:
    """Have `serve` run in further processes for as long as the block lasts. It is given the end of the pipe that is
    readable once it has to stop.
    """
    ours, theirs = os.pipe()
    made = []
    for _ in range(wanted() - 1):
        twin = os.fork()
        if twin == 0:
            code = 1
            try:
                os.close(theirs)
                serve(ours)
                code = 0
            finally:
                os._exit(code)  # nothing of the first process is finished twice
        made.append(twin)
    os.close(ours)
    try:
        yield
    finally:
        os.close(theirs)
        for twin in made:
            _wait(twin)


def _wait(twin: int) -> None:
    end = time.monotonic() + LONGEST_END
    with suppress(ChildProcessError):  # somebody else waited for it
        while os.waitpid(twin, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(twin, signal.SIGKILL)
            time.sleep(0.01)
