"""Shared parts of the `inlayer learn` commands: group, options, service, printer, pager, and prompts."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from inlayer.cli.app import app, examples
from inlayer.cli.app import command as app_command
from inlayer.cli.output import console
from inlayer.learn.progress_file import ProgressFile
from inlayer.learn.questions import MAX_SEED
from inlayer.learn.service import CourseService
from inlayer.learn.terminal import CoursePrinter, EncodedOutput

MAX_WIDTH = 100  # columns; longer lines are hard to read

COMMAND_ORDER = (
    "list", "read", "next", "check", "watch", "hint", "solution", "skip", "reset", "exercise", "quiz", "progress",
    "misconceptions", "notebook", "grade", "dev-check",
)  # fmt: skip

FolderOption = Annotated[
    str | None,
    typer.Option(
        help="Folder for your files; remembered for the next command. \\[default: inlayer-course in the current folder]"
    ),
]
SeedOption = Annotated[int | None, typer.Option(min=0, max=MAX_SEED, help="Random seed; reuse it to repeat a run.")]
TaskOrFile = Annotated[
    str | None,
    typer.Argument(metavar="TASK|FILE", help="Task, or a file named after one. \\[default: the task in progress]"),
]


class DefaultToList(TyperGroup):
    """The command group. Without a command, it runs `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = args in ([], ["--json"]) and not ctx.resilient_parsing  # shell completion is resilient
        return super().parse_args(ctx, ["list", *args] if is_list else args)

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return sorted(self.commands, key=COMMAND_ORDER.index)


learn = typer.Typer(
    cls=DefaultToList,
    rich_markup_mode="rich",
    epilog=examples("inlayer learn", "inlayer learn next", "inlayer learn check"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(learn, name="learn")
command = partial(app_command, group=learn)


@learn.callback()
def learn_() -> None:
    """Take the course: lessons, graded tasks, exercises, and quizzes. Without a command, lists the lessons."""


def open_service(*, must_save: bool = False, folder: str | None = None) -> CourseService:
    """Return the course service. Unless `must_save` is True, the command continues if progress cannot be saved."""

    def notify(line: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"inlayer: {line}\n")

    return CourseService(ProgressFile(on_notice=notify, allow_unsaved=not must_save), folder=folder)


def open_printer() -> CoursePrinter:
    return CoursePrinter(console(MAX_WIDTH, file=EncodedOutput(sys.stdout)))


def paged(out: CoursePrinter, *, enabled: bool) -> AbstractContextManager[object]:
    """Show output in a pager ($PAGER or `less`) if standard output is a terminal."""
    if not enabled or not sys.stdout.isatty():
        return nullcontext()
    os.environ.setdefault("LESS", "-RFX")  # colors; exit immediately if the text fits on the screen
    return out.console.pager(styles=out.console.color_system is not None)


class QuitError(Exception):
    """The learner quit in the middle of a question."""


@contextmanager
def interruptible(service: CourseService, command: str = "") -> Iterator[None]:
    """Print one line and exit: with code 130 after Ctrl-C, or with 0 and the command to continue after QuitError."""
    try:
        yield
    except (KeyboardInterrupt, QuitError) as error:
        saved = "progress is not saved" if service.progress.unsaved is not None else "your progress is saved"
        if isinstance(error, QuitError):
            sys.stdout.write(f"Stopped here; {saved}. To continue:\n  {command}\n")
            raise typer.Exit from None
        sys.stdout.flush()
        sys.stderr.write(f"\nstopped; {saved}\n")
        raise typer.Exit(130) from None


def prompt(text: str) -> str:
    """Read a stripped line; QuitError at the end of the input."""
    sys.stdout.flush()
    try:
        return input(text).strip()
    except (EOFError, UnicodeDecodeError, RuntimeError):  # RuntimeError: there is no standard input
        sys.stdout.write("\n")
        raise QuitError from None


def confirm(question: str) -> bool:
    with suppress(QuitError):
        return prompt(f"{question} Type yes to continue: ").lower() == "yes"
    return False
