"""`inlayer learn progress`: what is done, moved to another machine, or begun anew."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlayer.cli.inputs import read_start
from inlayer.cli.learn.files import open_progress
from inlayer.cli.learn.next_step import say_at, say_next, say_questions
from inlayer.cli.learn.tasks import AS_JSON, reset_progress
from inlayer.errors import InputError
from inlayer.paths import check_path, shown, what_is_at, wrong_kind
from inlayer.saving import write_whole

if TYPE_CHECKING:
    from inlayer.learn.course import Lesson
    from inlayer.learn.progress import State

__all__ = ["counts", "progress"]

PROGRESS_EXAMPLES = """Examples:

inlayer learn progress

inlayer learn progress --json

inlayer learn progress --export progress.json

inlayer learn progress --import progress.json
"""


def progress(
    as_json: AS_JSON = False,
    export: Annotated[
        str | None,
        typer.Option(metavar="FILE", help='Write it to a file, to be moved; "-" is standard output.'),
    ] = None,
    take: Annotated[
        str | None, typer.Option("--import", metavar="FILE", help="Add what was done on another machine.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Begin anew; the old one is kept beside.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file of --export.")] = False,
) -> None:
    """What you have done; move it to another machine, or begin anew."""
    asked = [name for name, said in (("--json", as_json), ("--export", export is not None),
                                     ("--import", take is not None), ("--reset", reset)) if said]  # fmt: skip
    if len(asked) > 1:
        raise InputError(f"{asked[0]} and {asked[1]} are two things; do one after the other")
    kept = open_progress(needed=True)
    if reset:
        reset_progress(kept, yes=yes)
    elif export is not None:
        export_progress(kept.read(), export, overwrite=overwrite)
    elif take is not None:
        kept.take_in(read_export(take))
        sys.stdout.write(f"What {shown(take)} holds is added to your progress.\n")
    else:
        show_progress(kept.read(), kept.path, as_json=as_json)


def export_progress(state: State, name: str, *, overwrite: bool) -> None:
    from inlayer.learn.progress import written

    state.folder = ""  # of this machine
    data = written(state)
    if name == "-":
        sys.stdout.write(data.decode())
        return
    path = check_path(name, "--export")
    kind = what_is_at(path)
    if kind not in {"file", "nothing"}:
        raise wrong_kind(path, kind)
    if kind == "file" and not overwrite:
        raise InputError(f"{shown(name)} is there already; --overwrite replaces it")
    write_whole(path.absolute(), data)
    sys.stdout.write(f"{shown(name)} holds your progress.\n")


def read_export(name: str) -> State:
    from inlayer.learn.progress import MAX_BYTES, DamagedError, read_state

    data = read_start(check_path(name, "--import"), MAX_BYTES)
    try:
        return read_state(data)
    except DamagedError as error:
        raise InputError(f"{shown(name)} {error}") from None
    except InputError as error:
        raise InputError(f"{shown(name)}: {error}") from None


def show_progress(state: State, path: Path, *, as_json: bool) -> None:
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course
    from inlayer.learn.progress import written
    from inlayer.learn.quiz import due

    course = open_course()
    sums = {"read": [0, 0], "task": [0, 0], "exercise": [0, 0], "quiz": [0, 0]}
    for lesson in course.lessons:
        for kind, (done, of) in counts(lesson, state).items():
            sums[kind][0] += done
            sums[kind][1] += of
    seen = [name for name in course.tasks if state.task(name).solution_seen]
    coming = due(course, state)
    if as_json:
        names = {"read": "lessons", "task": "tasks", "exercise": "exercises", "quiz": "questions"}
        totals = {names[kind]: {"done": done, "of": of} for kind, (done, of) in sums.items()}
        done = sum(bool(state.question(name).right) for name in course.questions)
        totals["questions"] |= {"done": done, "due": len(coming)}  # right once, also where it is to come back
        facts = json.loads(written(state)) | {"file": str(path), "totals": totals}
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    out = page()
    words = {"read": "lessons read", "task": "tasks passed", "exercise": "exercises done", "quiz": "questions right"}
    for kind, (done, of) in sums.items():
        out.line(f"{words[kind]:<16} {done:>3} of {of}")
    hints = sum(state.task(name).hints for name in course.tasks)
    out.line(f"{'hints taken':<16} {hints:>3}")
    if seen:
        out.line(f"solution seen before passing: {', '.join(seen)}")
    if coming:
        out.line(f"{'questions missed':<16} {len(coming):>3}, to come back:")
        say_questions(out, coming)
    out.line()
    say_at(out, course, state)
    say_next(out, course, state)
    out.line()
    if state.folder:
        out.line(f"your files: {shown(state.folder)}", style="dim", whole=True)
    out.line(f"kept in:    {shown(path)}", style="dim", whole=True)


def counts(lesson: Lesson, state: State) -> dict[str, tuple[int, int]]:
    """Of each kind of step of a lesson: how many are done, of how many; of its quiz, the questions.

    A question that is to come back is not counted as right until it has.
    """
    from inlayer.learn.progress import steps

    found: dict[str, tuple[int, int]] = {"read": (0, 0), "task": (0, 0), "exercise": (0, 0), "quiz": (0, 0)}
    for step in steps(lesson):
        if step.kind == "quiz":
            records = [state.question(one.id) for one in lesson.questions]
            found["quiz"] = (sum(bool(one.right) and not one.due for one in records), len(records))
        else:
            done, of = found[step.kind]
            found[step.kind] = (done + step.is_done(state), of + 1)
    return found
