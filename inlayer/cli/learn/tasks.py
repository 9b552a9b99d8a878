"""`inlayer learn check, hint, solution, reset`: working on a task.

Exit code of check: 0 if every check passed, 1 if one failed, 2 for bad input.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from inlayer.cli.app import Json
from inlayer.cli.learn.common import (
    FolderOption,
    SeedOption,
    TaskOrFile,
    command,
    confirm,
    interruptible,
    open_printer,
    open_service,
)
from inlayer.cli.output import print_json
from inlayer.errors import InputError
from inlayer.files import format_path
from inlayer.learn.service import CourseService
from inlayer.learn.task_files import TaskFile, read_file
from inlayer.learn.terminal import CoursePrinter

if TYPE_CHECKING:
    from inlayer.learn.grader import Verdict

TaskArgument = Annotated[str | None, typer.Argument(metavar="TASK", help="Task. \\[default: the task in progress]")]


@command(
    "inlayer learn check",
    "inlayer learn check gather",
    "inlayer learn check my/gather.py",
    "inlayer learn check try2.py --task gather --json",
    "Exit code: 0 passed, 1 failed, 2 bad input.",
)
def check(
    target: TaskOrFile = None,
    task: Annotated[str | None, typer.Option()] = None,
    folder: FolderOption = None,
    seed: SeedOption = None,
    as_json: Json = False,
) -> None:
    """Grade your file: the checks run in order until one fails.

    Options:
        task: The task to grade, if the file is not named after it.
    """
    service = open_service(folder=folder)
    file = service.find_task_file(target, task)
    out = open_printer()
    with interruptible(service), code_spinner(out, enabled=not as_json):
        verdict = service.check(file.task, read_file(file.path).text, seed=seed)
    if as_json:
        print_json({"file": format_path(file.path), **verdict.to_dict()})
    else:
        show_verdict(out, service, file, verdict)
    raise typer.Exit(0 if verdict.passed else 1)


def code_spinner(out: CoursePrinter, *, enabled: bool) -> AbstractContextManager[object]:
    """If standard output is a terminal, show how long the code has been running, until it finishes."""
    if not (enabled and sys.stdout.isatty()):
        return nullcontext()
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn("line"), TextColumn("running your code..."), TimeElapsedColumn())
    status = Progress(*columns, console=out.console, transient=True)
    status.add_task("", total=None)
    return status


def show_verdict(
    out: CoursePrinter, service: CourseService, file: TaskFile, verdict: Verdict, *, watching: bool = False
) -> None:
    """Print a verdict and what to do next; while watching, keys replace the commands."""
    out.checks(verdict)
    if not verdict.passed:
        out.line(f"{format_path(file.path)}, random values from seed {verdict.seed}", style="dim", wrap=False)
        if not watching:
            out.commands("Need a hint?", f"inlayer learn hint {file.task.id}")
        return
    out.passed(file.task, verdict, service.compare_with_walk(verdict))
    if not watching:
        out.line()
        out.next_step(service.overview())


def show_task_file(out: CoursePrinter, file: TaskFile, *, watching: bool = False) -> None:
    """Print a task, the file to edit, and the commands to continue with."""
    out.task(file.task)
    out.line(f"{'Created for you to edit' if file.is_new else 'Your file'}: {format_path(file.path)}", wrap=False)
    if not watching:
        commands = (f"inlayer learn {verb} {file.task.id}" for verb in ("check", "watch", "hint"))
        out.commands("Then run one of:", *commands)


@command("inlayer learn hint", "inlayer learn hint gather --level 3")
def hint(task: TaskArgument = None, level: Annotated[int | None, typer.Option(min=1, max=3)] = None) -> None:
    """Show a hint: a nudge, then the idea, then most of the code. Each call shows one more.

    Options:
        level: Hint level: 1 (a nudge), 2 (the idea), or 3 (most of the code).
    """
    service, out = open_service(), open_printer()
    started = service.find_task(task)
    if task is None and service.state().record("task", started.id).done_at:  # a guess would be recorded
        raise InputError(f"you have passed {started.id}, and no other task is in progress; run inlayer learn next")
    level = service.hint(started, level)
    out.hint(started, level)
    if level == len(started.hints):
        out.commands("This is the last hint. To see the solution:", f"inlayer learn solution {started.id} --show")


@command("inlayer learn solution gather", "inlayer learn solution gather --show")
def solution(task: TaskArgument = None, show: Annotated[bool, typer.Option("--show")] = False) -> None:
    """Show the solution of a task you have passed, or of any task with --show.

    Options:
        show: Show the solution before you have passed; this is recorded.
    """
    service = open_service()
    started = service.find_task(task)
    question = f"You have not passed {started.id} yet. Your progress will show that you viewed the solution."
    can_ask = sys.stdin and sys.stdin.isatty()
    if not (show or service.may_see_solution(started) or (can_ask and confirm(question))):
        raise InputError(
            f"you have not passed {started.id} yet; to see its solution anyway, run inlayer learn solution "
            f"{started.id} --show"
        )
    open_printer().solution(started, passed=service.record_solution(started))


@command("inlayer learn reset gather", "inlayer learn reset --yes")
def reset(
    task: TaskArgument = None, yes: Annotated[bool, typer.Option("--yes")] = False, folder: FolderOption = None
) -> None:
    """Restore the starter file of a task; the old file is kept. `progress --reset` resets all progress.

    Options:
        yes: Do not ask for confirmation.
    """
    service = open_service(folder=folder)
    started = service.find_task(task)
    if not yes and task is None and not confirm(f"This restores the starter file of {started.id}."):
        raise InputError("nothing was reset")
    backup = service.reset_file(started)
    out, (path, _) = open_printer(), service.load_file(started)
    out.line(f"{format_path(path)} is the starter file again.", wrap=False)
    if backup is not None:
        out.line(f"Your old file is kept: {format_path(backup)}", wrap=False)
    out.commands("Next: write your answer there, then run:", f"inlayer learn check {started.id}")
