"""`inlayer learn progress`: show, export, import or reset your progress."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from inlayer.cli.app import Json, print_json
from inlayer.cli.inputs import read_start
from inlayer.cli.learn.common import command, confirm, open_printer, open_service
from inlayer.errors import InputError
from inlayer.files import check_path, not_a_file, path_kind, shown, write_output
from inlayer.learn.course_steps import CourseOverview
from inlayer.learn.progress import MAX_BYTES, DamagedProgressError, ProgressState, dump_state, load_state
from inlayer.learn.service import CourseService


@command("progress", "", "--json", "--export progress.json", "--import progress.json")
def progress(
    as_json: Json = False,
    export: Annotated[
        str | None, typer.Option(metavar="FILE", help='Write it to a file; "-" is standard output.')
    ] = None,
    import_: Annotated[
        str | None, typer.Option("--import", metavar="FILE", help="Add progress exported on another machine.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Start over; the old progress file is kept.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Overwrite the file of --export.")] = False,
) -> None:
    """Show your progress, move it to another machine, or start over."""
    flags = {"--json": as_json, "--export": export is not None, "--import": import_ is not None, "--reset": reset}
    given = [name for name, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise InputError(f"{given[0]} and {given[1]} cannot be combined; run them one after the other")
    service = open_service(must_save=True)
    if reset:
        if not yes and not confirm("This resets all progress; your files stay."):
            raise InputError("nothing was reset; use --yes to skip the question")
        kept = service.progress.reset()
        sys.stdout.write("Progress was reset.\n" if kept else "There was no progress to reset.\n")
        if kept is not None:
            sys.stdout.write(f"The old progress is kept: {shown(kept)}\n")
        open_printer().next_step(service.overview())
    elif export is not None:
        export_progress(service.state(), export, overwrite=overwrite)
    elif import_ is not None:
        service.progress.merge(read_export(import_))
        sys.stdout.write(f"Added the progress in {shown(import_)} to yours.\n")
    else:
        show_progress(service, as_json=as_json)


def export_progress(state: ProgressState, name: str, *, overwrite: bool) -> None:
    state.folder = ""  # differs between machines
    data = dump_state(state)
    if name == "-":
        sys.stdout.write(data.decode())
        return
    path = check_path(name, "--export")
    kind = path_kind(path)
    if kind not in {"file", "missing"}:
        raise not_a_file(path, kind)
    if kind == "file" and not overwrite:
        raise InputError(f"{shown(name)} already exists; use --overwrite to replace it")
    write_output(path.absolute(), data)
    sys.stdout.write(f"Wrote your progress to {shown(name)}.\n")


def read_export(name: str) -> ProgressState:
    data = read_start(check_path(name, "--import"), MAX_BYTES)
    try:
        return load_state(data)
    except DamagedProgressError as error:
        raise InputError(f"{shown(name)} {error}") from None
    except InputError as error:
        raise InputError(f"{shown(name)}: {error}") from None


def show_progress(service: CourseService, *, as_json: bool) -> None:
    state, course, path = service.state(), service.course, service.progress.path
    overview = CourseOverview(course, state)
    if as_json:
        names = {"read": "lessons", "task": "tasks", "exercise": "exercises", "quiz": "questions"}
        totals = {names[kind]: {"done": done, "total": total} for kind, (done, total) in overview.counts.items()}
        answered = sum(bool(state.record("question", name).done) for name in course.questions)
        totals["questions"] |= {"done": answered, "due": len(overview.due)}  # correct once, even if due again
        print_json(json.loads(dump_state(state)) | {"file": str(path), "totals": totals})
        return
    out = open_printer()
    labels = {"read": "lessons read", "task": "tasks passed", "exercise": "exercises done", "quiz": "questions correct"}
    for kind, (done, total) in overview.counts.items():
        out.line(f"{labels[kind]:<18} {done:>3} of {total}")
    out.line(f"{'hints used':<18} {sum(state.record('task', name).hints for name in course.tasks):>3}")
    if seen := [name for name in course.tasks if state.record("task", name).solution_seen]:
        out.line(f"solution seen before passing: {', '.join(seen)}")
    if overview.due:
        out.line(f"{'questions to repeat':<18} {len(overview.due):>2}:")
        out.question_list(overview.due)
    out.line()
    out.next_step(overview, with_current=True)
    out.line()
    if state.folder:
        out.line(f"your files:    {shown(state.folder)}", style="dim", wrap=False)
    out.line(f"progress file: {shown(path)}", style="dim", wrap=False)
