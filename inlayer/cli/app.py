"""The Typer app that all commands join, and the console they print to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import inlayer

__all__ = ["app", "console", "progress_bar"]

app = typer.Typer(
    help="The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> bool:
    if requested:
        typer.echo(f"inlayer {inlayer.__version__}")
        raise typer.Exit
    return requested


@app.callback()
def inlayer_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head."""
    del version


MIN_WIDTH = 30  # columns


def console(max_width: int = 2**31, **settings: Any) -> Any:
    """Create the rich console of a command, at least 30 columns wide. `settings` are passed to rich."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which means findings or a failed check
            raise BrokenPipeError

    output = Output(highlight=False, **settings)
    width = min(max(output.width, MIN_WIDTH), max_width)
    return output if width == output.width else Output(highlight=False, width=width, **settings)


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr that disappears when the work is done; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label)
        yield lambda done, total: bar.update(task, completed=done, total=total)
