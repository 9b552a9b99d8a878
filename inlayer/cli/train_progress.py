"""Progress of a training run on stderr: a bar on a terminal, otherwise a line every few seconds.

Tested in tests/training/test_cli.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich_progress
from rich.console import Console

from inlayer.render.numbers import duration
from inlayer.training.metrics import Metrics
from inlayer.training.run import TrainingProgress

SECONDS = 10.0  # between two lines


class Reporter(TrainingProgress):
    """Shows progress as a bar, or as lines of a log without one."""

    def __init__(self, bar: rich_progress.Progress | None) -> None:
        self.bar, self.task = bar, rich_progress.TaskID(0)
        self.total, self.next_line = 0, 0.0

    def stage(self, name: str, total: int | None = None) -> None:
        self.total = total or 0
        if self.bar is None:
            sys.stderr.write(f"{name}\n")
        else:
            for task in self.bar.task_ids:
                self.bar.remove_task(task)
            self.task = self.bar.add_task(name, total=total)

    def advance(self, amount: int) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=amount)

    def warning(self, text: str) -> None:
        if self.bar is None:
            sys.stderr.write(f"warning: {text}\n")
        else:
            self.bar.console.print(f"[yellow]warning[/] {text}", highlight=False)

    def step(self, metrics: Metrics) -> None:
        step, seconds, now = metrics["step"], metrics["seconds"], time.monotonic()
        validation = f"  validation {metrics['validation_loss']:.3f}" if "validation_loss" in metrics else ""
        text = f"loss {metrics['loss']:.3f}{validation}  {metrics['tokens'] / (seconds or 1.0):,.0f} tokens/s"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, description=text)
        elif now >= self.next_line or step == self.total:
            self.next_line = now + SECONDS
            left = duration((self.total - step) * seconds / step)
            sys.stderr.write(f"step {step:,} of {self.total:,}  {text}  {left} left\n")


@contextmanager
def reporting() -> Iterator[TrainingProgress]:
    """Progress output that suits stderr."""
    if not sys.stderr.isatty():
        yield Reporter(None)
        return
    columns = (*rich_progress.Progress.get_default_columns(), rich_progress.MofNCompleteColumn())
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        yield Reporter(bar)
