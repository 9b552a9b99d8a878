"""`inlayer learn list, read, next, skip, misconceptions, progress`: finding your way through the course."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from inlayer.cli.app import Json
from inlayer.cli.inputs import read_prefix
from inlayer.cli.learn.common import FolderOption, command, confirm, open_printer, open_service, paged
from inlayer.cli.learn.questions import ask_exercise, ask_quiz
from inlayer.cli.learn.tasks import show_task_file
from inlayer.cli.output import print_json
from inlayer.errors import InputError
from inlayer.files import check_kind, check_path, format_path, write_output
from inlayer.learn.course import not_found_error
from inlayer.learn.course_steps import CourseOverview
from inlayer.learn.progress_file import MAX_PROGRESS_BYTES, ProgressState, dump_state, load_state
from inlayer.learn.service import CourseService

NoPager = Annotated[bool, typer.Option("--no-pager", help="Print directly, even on a terminal.")]


@command("inlayer learn list", "inlayer learn list forward", "inlayer learn list --json")
def list_(lesson: Annotated[str | None, typer.Argument()] = None, as_json: Json = False) -> None:
    """List the lessons, your progress, and the next step.

    Options:
        lesson: Lesson to list in detail.
    """
    service = open_service()
    overview = service.overview()
    chosen = overview.lessons if lesson is None else [overview.lessons[service.course.lesson(lesson).number - 1]]
    if as_json:
        step = overview.next_step
        print_json({"lessons": [entry.to_dict() for entry in chosen], "next": step and step.to_dict()})
        return
    out = open_printer()
    if lesson is not None:
        out.lesson_status(chosen[0])
    else:
        out.lessons(overview)
        out.line()
        out.next_step(overview, with_current=True)


@command("inlayer learn read forward", "inlayer learn read 3", "inlayer learn read gather --no-pager")
def read(lesson: Annotated[str | None, typer.Argument()] = None, no_pager: NoPager = False) -> None:
    """Read a lesson, or the statement of a task.

    Options:
        lesson: Lesson by name or number, or a task. Default: the next lesson.
    """
    service, out = open_service(), open_printer()
    if lesson is not None and lesson in service.course.tasks:
        with paged(out, enabled=not no_pager):
            out.task(service.course.tasks[lesson])
        return
    unread = [each.id for each in service.course.lessons if not service.state().record("read", each.id).done_at]
    chosen = service.course.lesson(lesson if lesson is not None else (unread or ["1"])[0])
    with paged(out, enabled=not no_pager):
        out.lesson(chosen)
    service.mark_read(chosen)
    out.next_step(service.overview())


@command("inlayer learn misconceptions", "inlayer learn misconceptions index_select")
def misconceptions(
    name: Annotated[str | None, typer.Argument(metavar="NAME")] = None, no_pager: NoPager = False
) -> None:
    """Read about common misconceptions, each with a runnable proof.

    Options:
        name: One entry. Default: all.
    """
    document = open_service().course.misconceptions
    if name is not None and name not in document.sections:
        otherwise = f"the entries are {', '.join(document.sections)}"
        raise not_found_error("misconception", name, document.sections, otherwise)
    out = open_printer()
    with paged(out, enabled=not no_pager):
        if name is None:
            out.heading(document.title)
            out.line()
            out.markdown(document.text)
        for entry, text in document.sections.items():
            if name in (None, entry):
                belief, _, explanation = text.partition("\n")
                out.markdown_line(belief, 0)
                out.line(entry, style="dim")
                out.line()
                out.markdown(explanation)


@command("inlayer learn next", "inlayer learn next gather", "inlayer learn next --folder my-answers")
def next_(task: Annotated[str | None, typer.Argument()] = None, folder: FolderOption = None) -> None:
    """Do the next step: read a lesson, start a task, answer an exercise, or take a quiz.

    Options:
        task: Task to start.
    """
    service, out = open_service(folder=folder), open_printer()
    step = None if task is not None else service.overview().next_step
    if step is not None and step.kind == "task":
        task = step.id
    if task is not None:
        show_task_file(out, service.start_task(task))
        return
    service.remember_folder()
    if step is not None and step.kind == "read":
        read(step.id)
        return
    if step is not None:
        if step.kind == "exercise":
            ask_exercise(out, service, service.course.exercises[step.id])
        else:
            ask_quiz(out, service, service.quiz_questions(step.id), "inlayer learn next")
        out.line()
    out.next_step(service.overview())


@command("inlayer learn skip", "inlayer learn skip gather")
def skip(target: Annotated[str | None, typer.Argument(metavar="ID")] = None) -> None:
    """Skip the next step for now; it comes back at the end.

    Options:
        target: Task or exercise. Default: the next step.
    """
    service, out = open_service(must_save=True), open_printer()
    out.line(f"Skipped: {service.skip(target)}")
    out.next_step(service.overview())


# ---- progress


@command(
    "inlayer learn progress",
    "inlayer learn progress --json",
    "inlayer learn progress --export progress.json",
    "inlayer learn progress --import progress.json",
)
def progress(
    as_json: Json = False,
    export: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    import_: Annotated[str | None, typer.Option("--import", metavar="FILE")] = None,
    reset: Annotated[bool, typer.Option("--reset")] = False,
    yes: Annotated[bool, typer.Option("--yes")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
) -> None:
    """Show your progress, move it to another machine, or start over.

    Options:
        export: Write your progress to a file; "-" writes to standard output.
        import_: Merge progress exported on another machine.
        reset: Start over; the old progress file is kept.
        yes: Do not ask for confirmation.
        overwrite: Overwrite the file of --export.
    """
    flags = {"--json": as_json, "--export": export is not None, "--import": import_ is not None, "--reset": reset}
    chosen = [name for name, is_given in flags.items() if is_given]
    if len(chosen) > 1:
        raise InputError(f"{chosen[0]} and {chosen[1]} cannot be combined; run them separately")
    service = open_service(must_save=True)
    if reset:
        if not yes and not confirm("This resets all progress. Your files are kept."):
            raise InputError("nothing was reset; use --yes to skip the confirmation")
        backup = service.progress.reset()
        sys.stdout.write("Progress was reset.\n" if backup else "There was no progress to reset.\n")
        if backup is not None:
            sys.stdout.write(f"The old progress is kept: {format_path(backup)}\n")
        open_printer().next_step(service.overview())
    elif export is not None:
        export_progress(service.state(), export, overwrite=overwrite)
    elif import_ is not None:
        exported = read_prefix(check_path(import_, "--import"), MAX_PROGRESS_BYTES)
        service.progress.merge(load_state(exported, format_path(import_)))
        sys.stdout.write(f"Merged the progress in {format_path(import_)} into yours.\n")
    else:
        show_progress(service, as_json=as_json)


def export_progress(state: ProgressState, name: str, *, overwrite: bool) -> None:
    state.folder = ""  # differs between machines
    data = dump_state(state)
    if name == "-":
        sys.stdout.write(data.decode())
        return
    path = check_path(name, "--export")
    if check_kind(path, "file", "missing") == "file" and not overwrite:
        raise InputError(f"{format_path(name)} already exists; use --overwrite to replace it")
    write_output(path.absolute(), data)
    sys.stdout.write(f"Wrote your progress to {format_path(name)}.\n")


def show_progress(service: CourseService, *, as_json: bool) -> None:
    state, course, path = service.state(), service.course, service.progress.path
    overview = CourseOverview(course, state)
    if as_json:
        counts = {kind: {"done": done, "total": total} for kind, (done, total) in overview.counts.items()}
        print_json(json.loads(dump_state(state)) | {"file": str(path), "counts": counts, "due": len(overview.due)})
        return
    out = open_printer()
    labels = {"read": "lessons read", "task": "tasks passed", "exercise": "exercises done", "quiz": "questions correct"}
    for kind, (done, total) in overview.counts.items():
        out.line(f"{labels[kind]:<18} {done:>3} of {total}")
    out.line(f"{'hints used':<18} {sum(state.record('task', name).hints for name in course.tasks):>3}")
    if seen := [name for name in course.tasks if state.record("task", name).solution_seen_at]:
        out.line(f"solution viewed before passing: {', '.join(seen)}")
    if overview.due:
        out.line(f"{'questions to repeat':<18} {len(overview.due):>2}:")
        out.question_list(overview.due)
    out.line()
    out.next_step(overview, with_current=True)
    out.line()
    if state.folder:
        out.line(f"your files:    {format_path(state.folder)}", style="dim", wrap=False)
    out.line(f"progress file: {format_path(path)}", style="dim", wrap=False)
