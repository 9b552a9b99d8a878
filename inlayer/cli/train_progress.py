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
from rich.text import Text

from inlayer.render.numbers import format_duration
from inlayer.training.metrics import Metrics
from inlayer.training.resumable_run import TrainingProgress

LOG_INTERVAL = 10.0  # seconds between two lines


class Reporter(TrainingProgress):
    """Shows progress as a bar, or as log lines if the bar is disabled."""

    def __init__(self, bar: rich_progress.Progress) -> None:
        self.bar, self.task = bar, rich_progress.TaskID(0)
        self.total, self.next_line = 0, 0.0
        self.warnings: list[str] = []  # warnings shown so far

    def stage(self, name: str, total: int | None = None) -> None:
        self.total = total or 0
        if self.bar.disable:
            sys.stderr.write(f"{name}\n")
        for task in self.bar.task_ids:
            self.bar.remove_task(task)
        self.task = self.bar.add_task(name, total=total)

    def advance(self, amount: int) -> None:
        self.bar.update(self.task, completed=amount)

    def note(self, text: str) -> None:
        self.bar.console.print(text, soft_wrap=True, highlight=False, markup=False)

    def warning(self, text: str) -> None:
        self.warnings.append(text)
        self.bar.console.print(Text.assemble(("warning: ", "yellow"), text), soft_wrap=True)

    def step(self, metrics: Metrics) -> None:
        step, seconds, now = metrics["step"], metrics["seconds"], time.monotonic()
        validation = f"  validation {metrics['validation_loss']:.3f}" if "validation_loss" in metrics else ""
        text = f"loss {metrics['loss']:.3f}{validation}  {metrics['tokens'] / (seconds or 1.0):,.0f} tokens/s"
        self.bar.update(self.task, completed=step, description=text)
        if self.bar.disable and (now >= self.next_line or step == self.total):
            self.next_line = now + LOG_INTERVAL
            remaining = format_duration((self.total - step) * seconds / step)
            sys.stderr.write(f"step {step:,} of {self.total:,}  {text}  {remaining} left\n")


@contextmanager
def reporting() -> Iterator[Reporter]:
    columns = (*rich_progress.Progress.get_default_columns(), rich_progress.MofNCompleteColumn())
    disable = not sys.stderr.isatty()
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True, disable=disable) as bar:
        yield Reporter(bar)
