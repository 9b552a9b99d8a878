"""A progress bar on stderr, shared by the command line and by `Model.encode`.

Tested in tests/encoding/test_encode.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(label: str, unit: str = "") -> Iterator[Callable[..., None] | None]:
    """A progress bar on stderr that disappears when the work is done; None if stderr is not a terminal.

    It yields `update(done, total, count=done)`. With a `unit`, such as "rows", it also shows `count` per second.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    speed = [TextColumn("{task.fields[speed]}")] if unit else []
    with Progress(*Progress.get_default_columns(), *speed, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None, speed="")

        def update(done: int, total: int | None, count: int | None = None) -> None:
            elapsed, count = bar.tasks[0].elapsed or 0.0, done if count is None else count
            speed = f"{count:,} {unit}, {count / elapsed:,.0f}/s" if unit and elapsed else ""
            bar.update(task, completed=done, total=total, speed=speed)

        yield update
