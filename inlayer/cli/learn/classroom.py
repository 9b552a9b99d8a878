"""`inlayer learn notebook, grade, dev-check`: for teachers and course authors."""

from __future__ import annotations

import shlex
import sys
from typing import Annotated

import typer

from inlayer.cli.app import Json
from inlayer.cli.learn.common import SeedOption, command
from inlayer.files import check_path, format_path, write_output
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import progress_bar


@command("inlayer learn notebook", "inlayer learn notebook forward padding --folder notebooks")
def notebook(
    lessons: Annotated[list[str] | None, typer.Argument()] = None,
    folder: Annotated[str, typer.Option()] = "inlayer-notebooks",
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Write the lessons as Jupyter notebooks, with the same grader.

    Options:
        lessons: Lessons. Default: all.
        folder: Folder to write to.
        overwrite: Overwrite existing notebooks.
    """
    from inlayer.learn.course import open_course
    from inlayer.learn.notebook import write_notebooks

    course = open_course()
    chosen = [course.lesson(name) for name in lessons] if lessons else list(course.lessons)
    for path in write_notebooks(check_path(folder, "--folder"), chosen, overwrite=overwrite):
        sys.stdout.write(f"{format_path(path)}\n")
    sys.stdout.write(f"Next: open them with Jupyter (pip install jupyterlab):\n  jupyter lab {shlex.quote(folder)}\n")


@command(
    "inlayer learn grade class/",
    "inlayer learn grade class/ --out grades",
    "inlayer learn grade class/ --task gather --seed 7 --json",
)
def grade(
    folder: Annotated[str, typer.Argument()],
    task: Annotated[list[str] | None, typer.Option()] = None,
    out: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    as_json: Json = False,
    seed: SeedOption = None,
) -> None:
    """Grade the submissions of a class; a misbehaving file does not affect the others.

    Options:
        folder: Folder with one folder per learner.
        task: Grade only this task; can be repeated.
        out: Write NAME.csv and NAME.json. Default: print the CSV.
    """
    from inlayer.learn.batch import grade_folder

    with progress_bar("grading", "files") as progress:
        report = grade_folder(check_path(folder, "FOLDER"), tasks=task or None, seed=seed, progress=progress)
    if out is not None:
        target = check_path(out, "--out").absolute()
        for ending, text in ((".csv", report.to_csv()), (".json", report.to_json())):
            path = target.with_name(target.name + ending)
            write_output(path, text.encode())
            sys.stdout.write(f"{format_path(path)} ({pluralize(len(report.rows), 'row')})\n")
    else:
        sys.stdout.write(report.to_json() if as_json else report.to_csv())
    if report.not_graded:
        sys.stderr.write(f"stopped; files not graded: {report.not_graded:,}\n")
        raise typer.Exit(130)


@command("inlayer learn dev-check", "inlayer learn dev-check gather")
def dev_check(tasks: Annotated[list[str] | None, typer.Argument()] = None) -> None:
    """Validate tasks: solutions pass, starter files fail, and each wrong solution breaks the rule it is named after.

    Options:
        tasks: Tasks. Default: all.
    """
    from inlayer.learn.course import open_course
    from inlayer.learn.grader import find_problems

    course, total = open_course(), 0
    for task in [course.task(name) for name in tasks or course.tasks]:
        problems = list(find_problems(task))
        total += len(problems)
        sys.stdout.write("".join(f"{problem}\n" for problem in problems))
        counted = f"1 solution, 1 starter file, {pluralize(len(task.wrong_solutions), 'wrong solution')}"
        sys.stdout.write(f"{task.id}: {counted}; {pluralize(len(problems), 'problem')}\n")
        sys.stdout.flush()
    raise typer.Exit(1 if total else 0)
