"""Support for long-running work: a progress bar on stderr, and signals that stop the work between two steps.

Shared by the command line, training, and `Model.encode`. Tested in tests/encoding/test_encode.py,
tests/inspection/test_command.py, and tests/training/test_resume.py.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Progress = Callable[[int, int], object]  # steps done, steps in total; if work can be stopped, returning False stops it


def no_progress(*_: object) -> None:
    """Report nothing."""


@contextmanager
def progress_bar(label: str, unit: str = "") -> Iterator[Callable[..., None]]:
    """Show a progress bar on stderr that disappears when the work is done; nothing if stderr is not a terminal.

    Yields `update(done, total, count=done)`. With a `unit`, such as "rows", the bar also shows `count` per second.
    """
    if not sys.stderr.isatty():
        yield no_progress
        return
    from rich import progress as rich_progress
    from rich.console import Console

    speed = [rich_progress.TextColumn("{task.fields[speed]}")] if unit else []
    columns = (*rich_progress.Progress.get_default_columns(), *speed)
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, speed="")

        def update(done: int, total: int | None, count: int | None = None) -> None:
            elapsed, count = bar.tasks[0].elapsed or 0.0, done if count is None else count
            speed = f"{count:,} {unit}, {count / elapsed:,.0f}/s" if unit and elapsed else ""
            bar.update(task, completed=done, total=total, speed=speed)

        yield update


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect the first SIGINT or SIGTERM in a list; a second one raises KeyboardInterrupt."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # signals can only be handled in the main thread
        yield received
        return

    def handle(number: int, _: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
