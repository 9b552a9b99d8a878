"""`inlayer learn list, read, next, skip, misconceptions`: finding your way through the course."""

from __future__ import annotations

from typing import Annotated

import typer

from inlayer.cli.app import Json, print_json
from inlayer.cli.learn.common import FOLDER, command, open_printer, open_service, paged
from inlayer.cli.learn.questions import ask_exercise, ask_quiz
from inlayer.cli.learn.tasks import show_task_file
from inlayer.learn.course import not_found

NO_PAGER = Annotated[bool, typer.Option("--no-pager", help="Print directly, even on a terminal.")]


@command("list", "", "forward", "--json")
def list_(
    lesson: Annotated[str | None, typer.Argument(help="Lesson to list in detail.")] = None,
    as_json: Json = False,
) -> None:
    """List the lessons, what is done and what is next."""
    service = open_service()
    overview = service.overview()
    chosen = list(overview.lessons)
    if lesson is not None:
        chosen = [chosen[service.course.lesson(lesson).number - 1]]
    if as_json:
        step = overview.next_step
        print_json({"lessons": [one.to_dict() for one in chosen], "next": None if step is None else step.to_dict()})
        return
    out = open_printer()
    if lesson is not None:
        out.lesson_status(chosen[0])
    else:
        out.lessons(overview)
        out.line()
        out.next_step(overview, with_current=True)


@command("read", "forward", "3", "gather --no-pager")
def read(
    lesson: Annotated[
        str | None, typer.Argument(help="Lesson by name or number, or a task. \\[default: the next lesson]")
    ] = None,
    no_pager: NO_PAGER = False,
) -> None:
    """Read a lesson, or the statement of a task."""
    service, out = open_service(), open_printer()
    if lesson is not None and lesson in service.course.tasks:
        with paged(out, enabled=not no_pager):
            out.task(service.course.tasks[lesson])
        return
    unread = [one.id for one in service.course.lessons if not service.state().record("read", one.id).done]
    chosen = service.course.lesson(lesson if lesson is not None else (unread or ["1"])[0])
    with paged(out, enabled=not no_pager):
        out.lesson(chosen)
    service.mark_read(chosen)
    out.next_step(service.overview())


@command("misconceptions", "", "index_select")
def misconceptions(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One entry. \\[default: all]")] = None,
    no_pager: NO_PAGER = False,
) -> None:
    """Read about common misconceptions, each with a proof that runs."""
    document = open_service().course.misconceptions
    if name is not None and name not in document.sections:
        otherwise = f"the entries are {', '.join(document.sections)}"
        raise not_found("misconception", name, document.sections, otherwise)
    out = open_printer()
    with paged(out, enabled=not no_pager):
        for entry, text in {document.title: document.text, **document.sections}.items():
            if name in (None, entry):
                out.heading(entry)
                out.line()
                out.markdown(text)


@command("next", "", "gather", "--folder my-answers")
def next_(
    task: Annotated[str | None, typer.Argument(help="Task to start.")] = None,
    folder: FOLDER = None,
) -> None:
    """Do the next step: read a lesson, start a task, answer an exercise or take a quiz."""
    service, out = open_service(folder=folder), open_printer()
    step = None if task is not None else service.overview().next_step
    if task is not None or (step is not None and step.kind == "task"):
        show_task_file(out, service.start_task(task if step is None else step.id))
        return
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


@command("skip", "", "gather")
def skip(
    what: Annotated[
        str | None, typer.Argument(metavar="ID", help="Task or exercise. \\[default: the next step]")
    ] = None,
) -> None:
    """Skip the next step for now; it returns at the end."""
    service, out = open_service(must_save=True), open_printer()
    out.line(f"Skipped: {service.skip(what)}")
    out.next_step(service.overview())
