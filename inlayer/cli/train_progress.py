"""Progress of a training run on stderr: a bar on a terminal, otherwise a line every few seconds.

Tested in tests/training/test_cli.py.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from inlayer.render.numbers import duration
from inlayer.training.run import TrainingProgress
from inlayer.training.trainer import Metrics

__all__ = ["reporting"]

SECONDS = 10.0  # between two lines


class LineProgress(TrainingProgress):
    """Progress as lines of a log."""

    def __init__(self) -> None:
        self._total: int | None = None
        self._next = 0.0

    def stage(self, name: str, total: int | None = None) -> None:
        self._total = total
        sys.stderr.write(f"{name}\n")

    def step(self, metrics: Metrics, warnings: list[str]) -> None:
        for warning in warnings:
            sys.stderr.write(f"warning: {warning}\n")
        now = time.monotonic()
        if now >= self._next or metrics["step"] == self._total:
            self._next = now + SECONDS
            left = (self._total or 0) - metrics["step"]
            remaining = duration(left * metrics["seconds"] / metrics["step"])
            sys.stderr.write(f"step {metrics['step']:,} of {self._total:,}  {describe(metrics)}  {remaining} left\n")


class BarProgress(TrainingProgress):
    """Progress as a bar."""

    def __init__(self, bar: Any) -> None:
        self.bar: Any = bar
        self.task: Any = None

    def stage(self, name: str, total: int | None = None) -> None:
        if self.task is not None:
            self.bar.remove_task(self.task)
        self.task = self.bar.add_task(name, total=total)

    def advance(self, amount: int) -> None:
        self.bar.update(self.task, completed=amount)

    def step(self, metrics: Metrics, warnings: list[str]) -> None:
        for warning in warnings:
            self.bar.console.print(f"[yellow]warning[/] {warning}", highlight=False)
        self.bar.update(self.task, completed=metrics["step"], description=describe(metrics))


def describe(metrics: Metrics) -> str:
    """Loss and speed of a step."""
    validation = f"  validation {metrics['validation_loss']:.3f}" if "validation_loss" in metrics else ""
    speed = metrics["tokens"] / metrics["seconds"] if metrics["seconds"] else 0.0
    return f"loss {metrics['loss']:.3f}{validation}  {speed:,.0f} tokens/s"


@contextmanager
def reporting() -> Iterator[TrainingProgress]:
    """Progress output that suits stderr."""
    if not sys.stderr.isatty():
        yield LineProgress()
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=None),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=4) as bar:
        yield BarProgress(bar)
