"""`inlayer learn list, read, next, skip, misconceptions`: finding your way through the course."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.learn.common import AS_JSON, FOLDER, command, open_printer, open_service, paged, write_json
from inlayer.cli.learn.questions import ask_exercise, ask_quiz, grading_of
from inlayer.cli.learn.tasks import show_task_file
from inlayer.learn.task_files import choose_folder

if TYPE_CHECKING:
    from inlayer.learn.course_steps import CourseOverview, LessonStatus
    from inlayer.learn.terminal import CoursePrinter

__all__ = ["list_", "misconceptions", "next_", "read", "skip"]

NO_PAGER = Annotated[bool, typer.Option("--no-pager", help="Print directly, even on a terminal.")]


@command("list", "", "forward", "--json")
def list_(
    lesson: Annotated[str | None, typer.Argument(help="Lesson to list in detail.")] = None,
    as_json: AS_JSON = False,
) -> None:
    """List the lessons, what is done and what is next."""
    service = open_service()
    overview = service.overview()
    chosen = list(overview.lessons)
    if lesson is not None:
        chosen = [chosen[service.course.lesson(lesson).number - 1]]
    if as_json:
        step = overview.next_step
        following = None if step is None else {"kind": step.kind, "id": step.id, "command": step.command}
        write_json({"lessons": [lesson_json(one) for one in chosen], "next": following})
        return
    out = open_printer()
    if lesson is not None:
        show_lesson(out, chosen[0])
    else:
        show_lessons(out, overview)
        out.line()
        out.next_step(overview, with_current=True)


def lesson_json(status: LessonStatus) -> dict[str, Any]:
    lesson, skipped = status.lesson, status.skipped
    return {
        "number": lesson.number,
        "id": lesson.id,
        "title": lesson.title,
        "step": lesson.step,
        "read": status.read,
        "tasks": [
            {"id": one.id, "title": one.title, **vars(record), "skipped": f"task/{one.id}" in skipped}
            for one, record in zip(lesson.tasks, status.tasks, strict=True)
        ],
        "exercises": [
            {"id": one.id, "title": one.title, "graded": grading_of(one.ask(0)) == "graded",
             **vars(record), "skipped": f"exercise/{one.id}" in skipped}
            for one, record in zip(lesson.exercises, status.exercises, strict=True)
        ],
        "questions": [
            {"id": one.id, **vars(record)} for one, record in zip(lesson.questions, status.questions, strict=True)
        ],
    }  # fmt: skip


def show_lessons(out: CoursePrinter, overview: CourseOverview) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("lesson", no_wrap=True, style="bold")
    table.add_column("")
    for name in ("read", "tasks", "exercises", "quiz"):
        table.add_column(name, justify="right", no_wrap=True)
    for status in overview.lessons:
        cells = [Text("✓" if status.read else "·", style="green" if status.read else "")]
        for done, total in list(status.counts.values())[1:]:
            cells.append(Text(f"{done}/{total}", style="green" if done == total else ""))
        table.add_row(str(status.lesson.number), status.lesson.id, Text(status.lesson.title), *cells)
    out.console.print(table)


def show_lesson(out: CoursePrinter, status: LessonStatus) -> None:
    """Print everything in a lesson by name."""
    lesson = status.lesson
    out.heading(f"{lesson.number}. {lesson.title}")
    out.line(f"{'✓' if status.read else '·'} inlayer learn read {lesson.id}", indent=2)
    out.line()
    out.heading("Tasks (graded)")
    for task, record in zip(lesson.tasks, status.tasks, strict=True):
        notes = [f"passed before; last check: {record.summary}" if record.fails_again else record.summary]
        notes += ["solution seen"] if record.solution_seen else []
        notes += ["skipped"] if f"task/{task.id}" in status.skipped else []
        note = "; ".join(filter(None, notes))
        out.line(f"{'✓' if record.passed else '·'} {task.id}: {task.title}{f' ({note})' if note else ''}", indent=2)
    out.line()
    out.heading("Exercises (graded or self-checked)")
    for exercise, done in zip(lesson.exercises, status.exercises, strict=True):
        skipped = ", skipped" if f"exercise/{exercise.id}" in status.skipped else ""
        note = f"({grading_of(exercise.ask(0))}{skipped})"
        out.line(f"{'✓' if done.done else '·'} {exercise.id}: {exercise.title} {note}", indent=2)
    out.line()
    out.heading("Quiz")
    correct, total = status.counts["quiz"]
    due = sum(bool(one.due) for one in status.questions)
    repeat = f"; {due} missed, to repeat" if due else ""
    out.line(f"{'✓' if correct == total else '·'} {correct} of {total} questions correct{repeat}", indent=2)


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
    unread = [one.id for one in service.course.lessons if one.id not in service.state().read]
    chosen = service.course.lesson(lesson if lesson is not None else (unread or ["1"])[0])
    with paged(out, enabled=not no_pager):
        out.heading(f"{chosen.number}. {chosen.title}")
        out.line()
        out.markdown(chosen.text)
        out.line("In the walk:")
        out.command(f"inlayer walk --step {chosen.step}")
    service.mark_read(chosen)
    out.next_step(service.overview())


@command("misconceptions", "", "index_select")
def misconceptions(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One entry. \\[default: all]")] = None,
    no_pager: NO_PAGER = False,
) -> None:
    """Read about common misconceptions, each with a proof that runs."""
    from inlayer.learn.course import not_found, open_course

    document = open_course().misconceptions
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
    service = open_service()
    step = None if task is not None else service.overview().next_step
    if task is None and step is None:
        open_printer().next_step(service.overview())
        return
    if step is None or step.kind == "task":
        file = service.start_task(step.id if step is not None else task, folder)
        show_task_file(open_printer(), file)
        return
    if folder is not None:
        with service.edit() as state:
            choose_folder(state, folder)
    if step.kind == "read":
        read(step.id)
        return
    out = open_printer()
    if step.kind == "exercise":
        done = ask_exercise(out, service, service.course.exercises[step.id], None)
    else:
        done = ask_quiz(out, service, service.quiz_questions(step.id), None, "inlayer learn next")
    if done:
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
