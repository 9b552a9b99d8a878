"""`inlayer learn`: the verbs about a task: check, hint, solution, reset; watch is beside, in learn_watch.py.

Exit code of check: 0 when every check held, 1 when one failed, 2 for bad input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.learn.files import (
    begin_anew,
    confirm,
    file_of,
    find_work,
    lay_out,
    open_progress,
    read_source,
    settle,
    task_at_hand,
    task_begun,
)
from inlayer.cli.learn.next_step import say_next, say_unkept, stopping
from inlayer.errors import InputError
from inlayer.paths import shown

if TYPE_CHECKING:
    from inlayer.cli.learn.page import Page
    from inlayer.learn.course import Task
    from inlayer.learn.grader import Verdict
    from inlayer.learn.progress import Progress, State

__all__ = [
    "begin_task", "check", "hint", "judge", "reset", "reset_progress", "show_hint", "show_solution", "show_task",
    "show_verdict", "solution",
]  # fmt: skip

TASK = Annotated[str | None, typer.Argument(metavar="TASK", help="Without one, the task you are at.")]
FOLDER = Annotated[
    str | None,
    typer.Option(help="Where your files lie; remembered. \\[default: inlayer-course, here, the first time]"),
]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print facts as JSON.")]

CHECK_EXAMPLES = """Examples:

inlayer learn check

inlayer learn check gather

inlayer learn check my/gather.py

inlayer learn check try2.py --task gather --json

Exit code: 0 passed, 1 failed or not written yet, 2 bad input.
"""
HINT_EXAMPLES = """Examples:

inlayer learn hint

inlayer learn hint gather --level 3
"""
SOLUTION_EXAMPLES = """Examples:

inlayer learn solution gather

inlayer learn solution gather --show
"""
RESET_EXAMPLES = """Examples:

inlayer learn reset gather

inlayer learn reset --all --yes
"""


def check(
    what: Annotated[
        str | None,
        typer.Argument(metavar="TASK|FILE", help="A task, or a file named after one. Without, the task you are at."),
    ] = None,
    task: Annotated[str | None, typer.Option(help="The task, for a file of another name.")] = None,
    folder: FOLDER = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="Draw the same values again. \\[default: fresh ones]")
    ] = None,
    as_json: AS_JSON = False,
) -> None:
    """Check your file: each check in order, until one fails."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    course, progress = open_course(), open_progress()
    with progress.changing() as state:
        found, path, fresh = find_work(course, state, what, task, folder)
        if fresh:
            state.current = found.id
    if fresh:  # nobody has written anything yet: not a try
        if as_json:
            facts = {"task": found.id, "file": shown(path), "passed": False, "new": True, "summary": "not checked"}
            sys.stdout.write(json.dumps(facts) + "\n")
        else:
            out = page()
            show_task(out, found, path.parent, fresh=True)
            out.line(f"{shown(path)} is new: write your answer there, and check again.", style="bold", whole=True)
        say_unkept(progress)
        raise typer.Exit(1)
    with stopping(progress):
        verdict = judge(progress, found, read_source(path), seed)
    if as_json:
        sys.stdout.write(json.dumps(told(verdict, path), allow_nan=False) + "\n")
    else:
        out = page()
        show_verdict(out, found, verdict, path)
    say_unkept(progress)
    raise typer.Exit(0 if verdict.passed else 1)


def judge(progress: Progress, task: Task, source: str, seed: int | None = None) -> Verdict:
    """Grade a file, and remember how it came out."""
    from inlayer.learn.grader import grade

    verdict = grade(task, source, seed=seed)
    with progress.changing() as state:
        state.note_check(task.id, passed=verdict.passed, summary=verdict.summary)
    return verdict


def told(verdict: Verdict, path: Path) -> dict[str, Any]:
    """A verdict as JSON has it."""
    return {
        "task": verdict.task,
        "file": shown(path),
        "passed": verdict.passed,
        "n_passed": verdict.n_passed,
        "n_checks": len(verdict.results),
        "summary": verdict.summary,
        "seed": verdict.seed,
        "checks": [vars(result) for result in verdict.results],
        "printed": verdict.printed,
        "own": None if verdict.own is None else {"shape": list(verdict.own.shape), "dtype": str(verdict.own.dtype)},
    }


def show_verdict(out: Page, task: Task, verdict: Verdict, path: Path, *, watched: bool = False) -> None:
    """How it came out; after passing, why it works and the learner's own tensor in the walk.

    `watched`: keys are commands, so none is named that would be typed.
    """
    out.line(f"{task.id}: {verdict.summary}", style="bold green" if verdict.passed else "bold")
    out.checks(verdict)
    out.line()
    if not verdict.passed:
        out.line(f"{shown(path)}, values drawn from seed {verdict.seed}", style="dim", whole=True)
        if not watched:
            out.command(f"inlayer learn hint {task.id}", indent=0)
        return
    out.heading("Why it works")
    out.markdown(task.why)
    if verdict.own is None:
        out.line("See it in the walk:")
        out.command(f"inlayer walk --step {task.step}")
    else:
        from inlayer.learn.comparison import lay_beside

        out.heading("In the walk")
        out.beside(verdict.own, lay_beside(verdict.own, task.step))
    if not watched:
        out.line()
        out.line("Next:")
        out.command("inlayer learn next")


def show_task(out: Page, task: Task, folder: Path, *, fresh: bool, watched: bool = False) -> None:
    """What to write, and where; and what to type then, where nobody watches."""
    out.heading(f"Task {task.id}: {task.title}")
    out.line()
    out.markdown(task.text)
    out.line(f"{'Written for you to fill in' if fresh else 'Your file'}: {shown(file_of(task, folder))}", whole=True)
    if watched:
        return
    out.line("Then:")
    out.command(f"inlayer learn check {task.id}")
    out.command(f"inlayer learn watch {task.id}")
    out.command(f"inlayer learn hint {task.id}")


# ---- hint, solution


def hint(
    task: TASK = None,
    level: Annotated[int | None, typer.Option(min=1, max=3, help="1 a nudge, 2 the idea, 3 nearly the line.")] = None,
) -> None:
    """A hint: a nudge, then the idea, then nearly the line. One more each time."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    progress = open_progress()
    with progress.changing() as state:
        found = task_begun(open_course(), state, task)
        level = state.note_hint(found.id, level)
    show_hint(page(), found, level)
    say_unkept(progress)


def show_hint(out: Page, task: Task, level: int, *, watched: bool = False) -> None:
    out.heading(f"{task.id}: hint {level} of {len(task.hints)}")
    out.markdown(task.hints[level - 1])
    if level == len(task.hints) and watched:
        out.line("That is the last one. s shows the solution.")
    elif level == len(task.hints):
        out.line("That is the last one. The solution:")
        out.command(f"inlayer learn solution {task.id} --show")


def solution(
    task: TASK = None,
    show: Annotated[bool, typer.Option("--show", help="Show it before you have passed; remembered.")] = False,
) -> None:
    """The solution, after you have passed, or when you ask for it."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    progress = open_progress()
    state = progress.read()
    if task is None and state.current in open_course().tasks:
        task = state.current  # also where it has passed
    found = task_begun(open_course(), state, task)
    if not (show or may_see(state, found) or ask_for_solution(found)):
        raise InputError(
            f"{found.id} has not passed yet, so its solution is kept back; "
            f"to see it all the same: inlayer learn solution {found.id} --show"
        )
    with progress.changing() as state:
        state.note_solution(found.id)
    show_solution(page(), found, passed=bool(state.task(found.id).passed))
    say_unkept(progress)


def may_see(state: State, task: Task) -> bool:
    record = state.task(task.id)
    return bool(record.passed or record.solution_seen)


def ask_for_solution(task: Task) -> bool:
    if not sys.stdin or not sys.stdin.isatty():
        return False
    return confirm(f"{task.id} has not passed yet. That you saw the solution will be remembered.")


def show_solution(out: Page, task: Task, *, passed: bool) -> None:
    out.heading(f"{task.id}: a solution")
    out.code(task.solution)
    out.line()
    out.heading("Why it works")
    out.markdown(task.why)
    if not passed:
        out.line("Remembered: solution seen. Write it yourself and check it; passing still counts.", style="dim")


# ---- reset


def reset(
    task: TASK = None,
    everything: Annotated[bool, typer.Option("--all", help="All progress; your files stay.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    folder: FOLDER = None,
) -> None:
    """A task's file as it was at the start, the old one kept beside. Or begin all progress anew."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    progress = open_progress(needed=everything)
    if everything:
        if task is not None:
            raise InputError("--all is for everything; leave the task out")
        reset_progress(progress, yes=yes)
        return
    course, out = open_course(), page()
    state = progress.read()
    if task is None and state.current in course.tasks:
        task = state.current
    found = task_at_hand(course, state, task)
    if not yes and task is None and not confirm(f"The file of {found.id} begins anew."):
        raise InputError("nothing was reset")
    with progress.changing() as state:
        where = settle(state, folder)
        kept = begin_anew(found, where)
        state.current = found.id
    out.line(f"{shown(file_of(found, where))} is as it was at the start.", whole=True)
    if kept is not None:
        out.line(f"Your old file is kept: {shown(kept)}", whole=True)
    out.line("Next: write your answer there, then:")
    out.command(f"inlayer learn check {found.id}")
    say_unkept(progress)


def reset_progress(progress: Progress, *, yes: bool) -> None:
    """All of it, once that is confirmed."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    if not yes and not confirm("All progress begins anew; your files stay."):
        raise InputError("nothing was reset; without a question: --yes")
    kept = progress.reset()
    sys.stdout.write("Progress begins anew.\n" if kept else "There was no progress.\n")
    if kept is not None:
        sys.stdout.write(f"The old one is kept: {shown(kept)}\n")
    say_next(page(), open_course(), progress.read())


def begin_task(progress: Progress, task: Task, folder: str | None) -> tuple[Path, bool]:
    """Make a task the one at hand; its folder, and whether its file was written just now."""
    with progress.changing() as state:
        where = settle(state, folder)
        fresh = lay_out(task, where)
        state.current = task.id
    return where, fresh
