"""`inlayer learn check, hint, solution, reset`: working on a task.

Exit code of check: 0 if every check passed, 1 if one failed, 2 for bad input.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.learn.common import (
    AS_JSON,
    FOLDER,
    SEED,
    TASK,
    TASK_OR_FILE,
    command,
    confirm,
    interruptible,
    open_printer,
    open_service,
    write_json,
)
from inlayer.errors import InputError
from inlayer.files import shown

if TYPE_CHECKING:
    from inlayer.learn.course import Task
    from inlayer.learn.grader import Verdict
    from inlayer.learn.service import CourseService
    from inlayer.learn.task_files import TaskFile
    from inlayer.learn.terminal import CoursePrinter

__all__ = ["check", "hint", "reset", "show_task_file", "show_verdict", "solution"]


@command(
    "check",
    "",
    "gather",
    "my/gather.py",
    "try2.py --task gather --json",
    note="Exit code: 0 passed, 1 failed or not written yet, 2 bad input.",
)
def check(
    what: TASK_OR_FILE = None,
    task: Annotated[str | None, typer.Option(help="Task, if the file has another name.")] = None,
    folder: FOLDER = None,
    seed: SEED = None,
    as_json: AS_JSON = False,
) -> None:
    """Grade your file: the checks run in order until one fails."""
    from inlayer.learn.task_files import read_file

    service = open_service()
    file = service.find_work(what, task, folder)
    if file.is_new:  # nothing written yet, so this is not a try
        if as_json:
            data = {"task": file.task.id, "file": shown(file.path), "passed": False, "new": True}
            write_json(data | {"summary": "not checked"})
        else:
            out = open_printer()
            show_task_file(out, file)
            message = f"{shown(file.path)} is new. Write your answer there, then check again."
            out.line(message, style="bold", wrap=False)
        raise typer.Exit(1)
    with interruptible(service):
        verdict = service.check(file.task, read_file(file.path).text, seed=seed)
    if as_json:
        write_json(verdict_json(verdict, file.path))
    else:
        show_verdict(open_printer(), service, file.task, verdict, file.path)
    raise typer.Exit(0 if verdict.passed else 1)


def verdict_json(verdict: Verdict, path: Path) -> dict[str, Any]:
    output = verdict.walk_output
    return {
        "task": verdict.task,
        "file": shown(path),
        "passed": verdict.passed,
        "n_passed": verdict.n_passed,
        "n_checks": len(verdict.results),
        "summary": verdict.summary,
        "seed": verdict.seed,
        "checks": [asdict(result) for result in verdict.results],
        "printed": verdict.printed,
        "walk_output": None if output is None else {"shape": list(output.shape), "dtype": str(output.dtype)},
    }


def show_verdict(
    out: CoursePrinter, service: CourseService, task: Task, verdict: Verdict, path: Path, *, watching: bool = False
) -> None:
    """Print a verdict and what to do next; while watching, keys replace the commands."""
    out.checks(verdict)
    if not verdict.passed:
        out.line(f"{shown(path)}, random values from seed {verdict.seed}", style="dim", wrap=False)
        if not watching:
            out.line("Need a hint?")
            out.command(f"inlayer learn hint {task.id}")
        return
    out.passed(task, verdict, service.compare_with_walk(verdict))
    if not watching:
        out.line()
        out.next_step(service.overview())


def show_task_file(out: CoursePrinter, file: TaskFile, *, watching: bool = False) -> None:
    """Print a task, the file to edit, and the commands to continue with."""
    out.task(file.task)
    out.line(f"{'Created for you to edit' if file.is_new else 'Your file'}: {shown(file.path)}", wrap=False)
    if not watching:
        out.line("Then run one of:")
        for command in ("check", "watch", "hint"):
            out.command(f"inlayer learn {command} {file.task.id}")


@command("hint", "", "gather --level 3")
def hint(
    task: TASK = None,
    level: Annotated[int | None, typer.Option(min=1, max=3, help="1 a nudge, 2 the idea, 3 most of the code.")] = None,
) -> None:
    """Show a hint: a nudge, then the idea, then most of the code; one more each time."""
    service, out = open_service(), open_printer()
    shown_hint = service.hint(service.started_task(task), level)
    out.hint(shown_hint)
    if shown_hint.is_last:
        out.line("This is the last hint. To see the solution:")
        out.command(f"inlayer learn solution {shown_hint.task.id} --show")


@command("solution", "gather", "gather --show")
def solution(
    task: TASK = None,
    show: Annotated[bool, typer.Option("--show", help="Show it before you have passed; this is recorded.")] = False,
) -> None:
    """Show the solution of a task you have passed, or of any task with --show."""
    service = open_service()
    found = service.started_task(task, allow_passed=True)
    question = f"{found.id} has not passed yet. It will be recorded that you saw the solution."
    can_ask = sys.stdin and sys.stdin.isatty()
    if not (show or service.may_see_solution(found) or (can_ask and confirm(question))):
        raise InputError(
            f"{found.id} has not passed yet; to see its solution anyway, run inlayer learn solution {found.id} --show"
        )
    passed = service.record_solution(found)
    open_printer().solution(found, passed=passed)


@command("reset", "gather", "--yes")
def reset(
    task: TASK = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    folder: FOLDER = None,
) -> None:
    """Restore the start file of a task; the old file is kept. `progress --reset` resets all progress."""
    service = open_service()
    named = task or service.state().current or None
    found = service.choose_task(named if named in service.course.tasks else task)
    if not yes and task is None and not confirm(f"This restores the start file of {found.id}."):
        raise InputError("nothing was reset")
    kept = service.reset_file(found, folder)
    out, (path, _) = open_printer(), service.load_file(found)
    out.line(f"{shown(path)} is the start file again.", wrap=False)
    if kept is not None:
        out.line(f"Your old file is kept: {shown(kept)}", wrap=False)
    out.line("Next: write your answer there, then run:")
    out.command(f"inlayer learn check {found.id}")
