"""`inlayer learn`: for a class and for those who write the course: notebook, grade, dev-check."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from inlayer.cli.learn.tasks import AS_JSON
from inlayer.paths import check_path, shown
from inlayer.saving import write_whole

__all__ = ["dev_check", "grade", "notebook"]

NOTEBOOK_EXAMPLES = """Examples:

inlayer learn notebook

inlayer learn notebook forward padding --folder notebooks
"""
GRADE_EXAMPLES = """Examples:

inlayer learn grade class/

inlayer learn grade class/ --out marks

inlayer learn grade class/ --task gather --seed 7 --json
"""
DEV_CHECK_EXAMPLES = """Examples:

inlayer learn dev-check

inlayer learn dev-check gather
"""


def notebook(
    lessons: Annotated[list[str] | None, typer.Argument(help="Lessons. Without, all of them.")] = None,
    folder: Annotated[str, typer.Option(help="Where to write.")] = "inlayer-notebooks",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace notebooks that are there.")] = False,
) -> None:
    """Write the lessons as notebooks, with the same grader."""
    from inlayer.learn.course import open_course
    from inlayer.learn.notebook import write_notebooks

    course = open_course()
    chosen = [course.lesson(name) for name in lessons] if lessons else list(course.lessons)
    for path in write_notebooks(check_path(folder, "--folder"), chosen, overwrite=overwrite):
        sys.stdout.write(f"{shown(path)}\n")
    sys.stdout.write(f"Next: open them with Jupyter (pip install jupyterlab):\n  jupyter lab {shlex.quote(folder)}\n")


def grade(
    folder: Annotated[str, typer.Argument(help="One folder a learner, with their files.")],
    task: Annotated[list[str] | None, typer.Option(help="Only this task; can be given several times.")] = None,
    out: Annotated[
        str | None, typer.Option(metavar="NAME", help="Write NAME.csv and NAME.json. \\[default: print the CSV]")
    ] = None,
    as_json: AS_JSON = False,
    seed: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="The same values for everybody.")] = None,
) -> None:
    """For a class: grade many learners' files. One that misbehaves spoils nothing for the rest."""
    from inlayer.learn.batch import grade_folder
    from inlayer.learn.course import open_course

    course = open_course()
    for name in task or []:
        course.task(name)
    report = grade_folder(check_path(folder, "FOLDER"), tasks=task or None, seed=seed, progress=_counter(out))
    if out is not None:
        place = check_path(out, "--out").absolute()
        for ending, text in ((".csv", report.to_csv()), (".json", report.to_json())):
            path = place.with_name(place.name + ending)
            write_whole(path, text.encode())
            sys.stdout.write(f"{shown(path)} ({len(report.rows):,} rows)\n")
    else:
        sys.stdout.write(report.to_json() if as_json else report.to_csv())
    if report.left:
        sys.stderr.write(f"stopped: {report.left:,} files were not graded\n")
        raise typer.Exit(130)


def _counter(out: str | None) -> Callable[[int, int], None] | None:
    """How far it is, on stderr: one line that changes in a terminal; elsewhere a line for each tenth, with --out."""
    if sys.stderr.isatty():
        return _counting
    return None if out is None else _counting_tenths


def _counting(done: int, of: int) -> None:
    sys.stderr.write(f"\r{done:,} of {of:,} files" + ("\n" if done == of else ""))
    sys.stderr.flush()


def _counting_tenths(done: int, of: int) -> None:
    if done * 10 // of > (done - 1) * 10 // of:
        sys.stderr.write(f"{done:,} of {of:,} files\n")
        sys.stderr.flush()


def dev_check(
    tasks: Annotated[list[str] | None, typer.Argument(help="Tasks. Without, all of them.")] = None,
) -> None:
    """For those who write the course: each solution passes, each start fails, each wrong one by its own rule."""
    from inlayer.learn.course import open_course
    from inlayer.learn.dev_check import find_faults

    course, faults = open_course(), 0
    for task in [course.task(name) for name in tasks or course.tasks]:
        found = list(find_faults(task))
        faults += len(found)
        sys.stdout.write("".join(f"{fault}\n" for fault in found))
        sys.stdout.write(f"{task.id}: 1 solution, 1 start, {len(task.wrong)} wrong; {len(found)} faults\n")
        sys.stdout.flush()
    raise typer.Exit(1 if faults else 0)
