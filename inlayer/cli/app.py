"""What all verbs of the command line share: the app they join, and the console they print on.

Each verb is a file beside this one. It translates its arguments into a library call and prints the answer; what it
computes lives in a room.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import inlayer

__all__ = ["app", "console", "stopping_at_once"]

app = typer.Typer(
    help="The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"inlayer {inlayer.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def inlayer_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head."""
    del version


NARROWEST = 30  # columns


def console(widest: int | None = None, **settings: Any) -> Any:
    """Where a verb prints for people: never too narrow to read, and a reader who leaves ends it with his own code.

    `settings` are rich's own.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which says of findings, or of a failed check
            raise BrokenPipeError

    made = Output(highlight=False, **settings)
    width = max(made.width, NARROWEST)
    width = width if widest is None else min(width, widest)
    return made if width == made.width else Output(highlight=False, width=width, **settings)


@contextmanager
def stopping_at_once() -> Iterator[None]:
    """Ctrl-C ends the process also where a thread still waits, for a network or a large table: Python's own exit may
    crash inside it.
    """
    try:
        yield
    except KeyboardInterrupt:
        if any(thread.name.startswith("inlayer-walk") for thread in threading.enumerate()):
            sys.stdout.flush()
            os._exit(130)
        raise
