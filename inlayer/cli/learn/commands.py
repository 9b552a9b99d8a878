"""`inlayer learn`: the course in the terminal. The verbs are here and in the files learn_*.py beside.

- without a verb it lists the lessons, what is done, and what to do next; `next` does that
- torch is imported where code is graded and nowhere else: reading and asking answer at once
Checked as a learner would in tests/learn/test_cli.py, and from end to end in tests/learn/test_course_taken.py.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from inlayer.cli.app import app
from inlayer.cli.learn import classroom as learn_class
from inlayer.cli.learn import progress as learn_progress
from inlayer.cli.learn import questions as learn_asking
from inlayer.cli.learn import tasks as learn_tasks
from inlayer.cli.learn import watch as learn_watch
from inlayer.cli.learn.files import open_progress
from inlayer.cli.learn.next_step import say_at, say_next, say_unkept, stopping, title_of
from inlayer.cli.learn.progress import counts
from inlayer.cli.learn.tasks import AS_JSON, FOLDER
from inlayer.errors import InputError
from inlayer.paths import quoted

if TYPE_CHECKING:
    from inlayer.cli.learn.page import Page
    from inlayer.learn.course import Course, Lesson
    from inlayer.learn.progress import State

__all__ = ["learn"]

EXAMPLES = """Examples:

inlayer learn

inlayer learn next

inlayer learn check
"""


class Verbs(TyperGroup):
    """The verbs; without one it lists."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["list", *args] if args in ([], ["--json"]) else args)


learn = typer.Typer(
    cls=Verbs,
    rich_markup_mode="rich",
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(learn, name="learn")


@learn.callback()
def learn_() -> None:
    """The course: lessons, tasks that are graded, exercises, quizzes. Without a verb, what is done and what is next."""


# ---- list

LIST_EXAMPLES = """Examples:

inlayer learn list

inlayer learn list forward

inlayer learn list --json
"""


def list_(
    lesson: Annotated[str | None, typer.Argument(help="A lesson, to see all that is in it.")] = None,
    as_json: AS_JSON = False,
) -> None:
    """Lessons, what is done of each, and what to do next."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course
    from inlayer.learn.progress import what_next

    course, progress = open_course(), open_progress()
    state = progress.read()
    chosen = [course.lesson(lesson)] if lesson is not None else list(course.lessons)
    if as_json:
        step = what_next(course, state)
        following = None if step is None else {"kind": step.kind, "id": step.id, "command": step.command}
        facts = {"lessons": [lesson_told(one, state) for one in chosen], "next": following}
        sys.stdout.write(json.dumps(facts) + "\n")
        return
    out = page()
    if lesson is not None:
        show_lesson_parts(out, chosen[0], state)
    else:
        show_lessons(out, course, state)
        out.line()
        say_at(out, course, state)
        say_next(out, course, state)
    say_unkept(progress)


def lesson_told(lesson: Lesson, state: State) -> dict[str, Any]:
    """A lesson as JSON has it."""
    return {
        "number": lesson.number,
        "id": lesson.id,
        "title": lesson.title,
        "step": lesson.step,
        "read": lesson.id in state.read,
        "tasks": [{"id": one.id, "title": one.title, **vars(state.task(one.id)), **skip_told(state, f"task/{one.id}")}
                  for one in lesson.tasks],
        "exercises": [
            {"id": one.id, "title": one.title, "judged": learn_asking.kind_of(one.ask(0)) == "judged",
             **vars(state.exercise(one.id)), **skip_told(state, f"exercise/{one.id}")}
            for one in lesson.exercises
        ],
        "questions": [{"id": one.id, **vars(state.question(one.id))} for one in lesson.questions],
    }  # fmt: skip


def skip_told(state: State, key: str) -> dict[str, bool]:
    return {"skipped": key in state.skipped}


def show_lessons(out: Page, course: Course, state: State) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("lesson", no_wrap=True, style="bold")
    table.add_column("")
    for name in ("read", "tasks", "exercises", "quiz"):
        table.add_column(name, justify="right", no_wrap=True)
    for lesson in course.lessons:
        made = [Text("✓" if lesson.id in state.read else "·", style="green" if lesson.id in state.read else "")]
        for done, of in list(counts(lesson, state).values())[1:]:
            made.append(Text(f"{done}/{of}", style="green" if done == of else ""))
        table.add_row(str(lesson.number), lesson.id, Text(lesson.title), *made)
    out.console.print(table)


def show_lesson_parts(out: Page, lesson: Lesson, state: State) -> None:
    """All that is in a lesson, by name."""
    out.heading(f"{lesson.number}. {lesson.title}")
    mark = "✓" if lesson.id in state.read else "·"
    out.line(f"{mark} inlayer learn read {lesson.id}", indent=2)
    out.line()
    out.heading("Tasks, graded by checks")
    for task in lesson.tasks:
        record = state.task(task.id)
        last = f"passed; last check: {record.summary}" if record.broken else record.summary
        notes = [last if record.tries else "", "solution seen" if record.solution_seen else ""]
        notes.append("skipped" if f"task/{task.id}" in state.skipped else "")
        said = "; ".join(filter(None, notes))
        out.line(f"{'✓' if record.passed else '·'} {task.id}: {task.title}{f' ({said})' if said else ''}", indent=2)
    out.line()
    out.heading("Exercises, judged or self-checked")
    for exercise in lesson.exercises:
        done, kind = state.exercise(exercise.id).done, learn_asking.kind_of(exercise.ask(0))
        said = f"{kind}, skipped" if f"exercise/{exercise.id}" in state.skipped else kind
        out.line(f"{'✓' if done else '·'} {exercise.id}: {exercise.title} ({said})", indent=2)
    out.line()
    out.heading("Quiz")
    right, of = counts(lesson, state)["quiz"]
    due = sum(bool(state.question(one.id).due) for one in lesson.questions)
    back = f"; {due} missed, to come back" if due else ""
    out.line(f"{'✓' if right == of else '·'} {right} of {of} questions right{back}", indent=2)


# ---- read, errata

READ_EXAMPLES = """Examples:

inlayer learn read forward

inlayer learn read 3

inlayer learn read gather
"""
ERRATA_EXAMPLES = """Examples:

inlayer learn errata

inlayer learn errata index_select
"""


def read(
    lesson: Annotated[
        str | None, typer.Argument(help="A lesson by name or number, or a task. Without, the next one to read.")
    ] = None,
) -> None:
    """Read a lesson, or what a task asks for."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course
    from inlayer.learn.progress import now

    course, progress, out = open_course(), open_progress(), page()
    if lesson is not None and lesson in course.tasks:
        task = course.tasks[lesson]
        out.heading(f"Task {task.id}: {task.title}")
        out.line()
        out.markdown(task.text)
        return
    if lesson is None:
        state = progress.read()
        chosen = next((one for one in course.lessons if one.id not in state.read), course.lessons[0])
    else:
        chosen = course.lesson(lesson)
    out.heading(f"{chosen.number}. {chosen.title}")
    out.line()
    out.markdown(chosen.text)
    out.line("In the walk:")
    out.command(f"inlayer walk --step {chosen.step}")
    with progress.changing() as state:
        state.read.setdefault(chosen.id, now())
    say_next(out, course, state)
    say_unkept(progress)


def errata(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="One entry. Without, all of them.")] = None,
) -> None:
    """What the documents that inlayer grew from got wrong, each with a proof that runs."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import guessed, open_course

    document = open_course().errata
    if name is not None and name not in document.sections:
        guess = guessed(name, document.sections) or f"the entries are {', '.join(document.sections)}"
        raise InputError(f"there is no entry {quoted(name)}; {guess}")
    out = page()
    if name is None:
        out.heading(document.title)
        out.line()
        out.markdown(document.text)
    for entry, text in document.sections.items():
        if name in (None, entry):
            out.heading(entry)
            out.line()
            out.markdown(text)


# ---- next, skip

NEXT_EXAMPLES = """Examples:

inlayer learn next

inlayer learn next gather

inlayer learn next --folder my-answers
"""
SKIP_EXAMPLES = """Examples:

inlayer learn skip

inlayer learn skip gather
"""


def next_(
    task: Annotated[str | None, typer.Argument(help="A task to go to.")] = None,
    folder: FOLDER = None,
) -> None:
    """Do what is next: read a lesson, begin a task, answer an exercise, take a quiz."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course
    from inlayer.learn.progress import what_next
    from inlayer.learn.quiz import to_ask

    course, progress = open_course(), open_progress()
    state = progress.read()
    step = None if task is not None else what_next(course, state)
    if task is None and step is None:
        say_next(page(), course, state)
        return
    if step is None or step.kind == "task":
        chosen = course.task(step.id if step is not None else task or "")
        where, fresh = learn_tasks.begin_task(progress, chosen, folder)
        learn_tasks.show_task(page(), chosen, where, fresh=fresh)
        say_unkept(progress)
        return
    if folder is not None:
        from inlayer.cli.learn.files import settle

        with progress.changing() as state:
            settle(state, folder)
    if step.kind == "read":
        read(step.id)
        return
    out = page()
    with stopping(progress):
        if step.kind == "exercise":
            done = learn_asking.ask_exercise(out, progress, course.exercises[step.id], None)
        else:
            questions = to_ask(course, state, step.lesson)
            done = learn_asking.sit(out, progress, questions, learn_asking.fresh_seed(), "inlayer learn next")
    if done:
        out.line()
        say_next(out, course, progress.read())


def skip(
    what: Annotated[
        str | None, typer.Argument(metavar="ID", help="A task or an exercise. Without, whatever is next.")
    ] = None,
) -> None:
    """Leave out what is next, for now: it comes again at the end."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import guessed, open_course
    from inlayer.learn.progress import now, what_next

    course, progress = open_course(), open_progress(needed=True)
    with progress.changing() as state:
        if what is None:
            step = what_next(course, state)
            if step is None:
                raise InputError("there is nothing left to skip: the course is done")
            key, name = step.key, title_of(course, step)
            if key in state.skipped:
                raise InputError(f"all that is left has been skipped; the first of it is {name}")
        elif what in course.exercises:
            key, name = f"exercise/{what}", f"the exercise {what}"
        elif "/" in what:
            guess = guessed(what, course.exercises, near=0.8) or "inlayer learn list LESSON names those of a lesson"
            raise InputError(f"there is no exercise {quoted(what)}; {guess}")
        else:
            found = course.task(what)
            key, name = f"task/{found.id}", f"the task {found.id}"
        state.skipped[key] = now()
        if key == f"task/{state.current}":
            state.current = ""
    out = page()
    out.line(f"Skipped: {name}")
    say_next(out, course, state)


for name, verb, examples in (
    ("list", list_, LIST_EXAMPLES),
    ("read", read, READ_EXAMPLES),
    ("next", next_, NEXT_EXAMPLES),
    ("check", learn_tasks.check, learn_tasks.CHECK_EXAMPLES),
    ("watch", learn_watch.watch, learn_watch.WATCH_EXAMPLES),
    ("hint", learn_tasks.hint, learn_tasks.HINT_EXAMPLES),
    ("solution", learn_tasks.solution, learn_tasks.SOLUTION_EXAMPLES),
    ("skip", skip, SKIP_EXAMPLES),
    ("reset", learn_tasks.reset, learn_tasks.RESET_EXAMPLES),
    ("exercise", learn_asking.exercise, learn_asking.EXERCISE_EXAMPLES),
    ("quiz", learn_asking.quiz, learn_asking.QUIZ_EXAMPLES),
    ("progress", learn_progress.progress, learn_progress.PROGRESS_EXAMPLES),
    ("errata", errata, ERRATA_EXAMPLES),
    ("notebook", learn_class.notebook, learn_class.NOTEBOOK_EXAMPLES),
    ("grade", learn_class.grade, learn_class.GRADE_EXAMPLES),
    ("dev-check", learn_class.dev_check, learn_class.DEV_CHECK_EXAMPLES),
):
    learn.command(name, epilog=examples)(verb)
