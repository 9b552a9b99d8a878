"""What the `inlayer learn` commands share: options, the service, the printer, the pager and prompts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.learn.service import MAX_SEED, CourseService

if TYPE_CHECKING:
    from inlayer.learn.terminal import CoursePrinter

__all__ = [
    "AS_JSON", "FOLDER", "SEED", "TASK", "TASK_OR_FILE", "confirm", "examples", "interruptible", "open_printer",
    "open_service", "paged", "prompt", "report_unsaved", "write_json",
]  # fmt: skip

MAX_WIDTH = 100  # columns; longer lines are hard to read

AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON.")]
FOLDER = Annotated[
    str | None,
    typer.Option(help="Folder of your files; remembered. \\[default: inlayer-course in the current folder]"),
]
SEED = Annotated[int | None, typer.Option(min=0, max=MAX_SEED, help="Use the same random values again.")]
TASK = Annotated[str | None, typer.Argument(metavar="TASK", help="Task. \\[default: the task in progress]")]
TASK_OR_FILE = Annotated[
    str | None,
    typer.Argument(metavar="TASK|FILE", help="Task, or a file named after one. \\[default: the task in progress]"),
]


def examples(*lines: str, note: str = "") -> str:
    """The epilog of a command: example commands, each on its own line."""
    return "\n\n".join(["Examples:", *lines, *([note] if note else [])]) + "\n"


def open_service(*, must_save: bool = False) -> CourseService:
    """The service of the course; unless `must_save`, a command continues if progress cannot be saved."""
    from inlayer.learn.progress import ProgressFile

    notify = lambda line: sys.stderr.write(f"inlayer: {line}\n")  # noqa: E731
    return CourseService(ProgressFile(on_notice=notify, allow_unsaved=not must_save))


def open_printer() -> CoursePrinter:
    """A printer for standard output."""
    from inlayer.cli.app import console
    from inlayer.learn.terminal import CoursePrinter, EncodedOutput

    return CoursePrinter(console(MAX_WIDTH, file=EncodedOutput(sys.stdout)))


@contextmanager
def paged(out: CoursePrinter, *, enabled: bool) -> Iterator[None]:
    """Show output in a pager ($PAGER, or less) if standard output is a terminal."""
    if not enabled or not sys.stdout.isatty():
        yield
        return
    os.environ.setdefault("LESS", "-RFX")  # colors; exit at once if the text fits on the screen
    with out.console.pager(styles=out.console.color_system is not None):
        yield


def write_json(data: Any) -> None:
    sys.stdout.write(json.dumps(data, allow_nan=False) + "\n")


def report_unsaved(service: CourseService) -> None:
    """Warn on stderr if progress is not saved."""
    if reason := service.progress.unsaved_reason:
        sys.stdout.flush()
        sys.stderr.write(f"inlayer: progress is not saved: {reason}\n")
        sys.stderr.flush()


def saved_note(service: CourseService) -> str:
    return "progress is not saved" if service.progress.unsaved_reason else "your progress is saved"


@contextmanager
def interruptible(service: CourseService) -> Iterator[None]:
    """Turn Ctrl-C into one line on stderr and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        sys.stderr.write(f"\nstopped; {saved_note(service)}\n")
        raise typer.Exit(130) from None


def prompt(text: str) -> str | None:
    """Read a stripped line; None at the end of the input."""
    sys.stdout.flush()
    try:
        return input(text).strip() if sys.stdin else None
    except (EOFError, UnicodeDecodeError):
        sys.stdout.write("\n")
        return None


def confirm(question: str) -> bool:
    """Ask for a typed "yes"."""
    answer = prompt(f"{question} Type yes to continue: ")
    return answer is not None and answer.lower() == "yes"
