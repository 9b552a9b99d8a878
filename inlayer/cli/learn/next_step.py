"""What every verb of the course may have to say: what is next, which task is at hand, that nothing is recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from inlayer.cli.learn.page import Page
    from inlayer.learn.course import Course, Question
    from inlayer.learn.progress import Progress, State, Step

__all__ = ["in_short", "say_at", "say_next", "say_questions", "say_unkept", "stopping", "title_of"]

SHORT = 66  # characters of a question's text
MAX_QUESTIONS = 5


def say_next(out: Page, course: Course, state: State) -> None:
    from inlayer.learn.progress import what_next
    from inlayer.learn.quiz import due

    step = what_next(course, state)
    if step is None:
        out.line("The course is done: every lesson, task, exercise and quiz.", style="bold")
        if coming := due(course, state):
            out.line(f"Questions missed before, to come back: {len(coming)}")
            out.command("inlayer learn quiz")
        return
    again = " (skipped before)" if step.key in state.skipped else ""
    out.line(f"Next: {title_of(course, step)}{again}")
    out.command("inlayer learn next")


def title_of(course: Course, step: Step) -> str:
    if step.kind == "task":
        return f"the task {step.id}, {course.tasks[step.id].title}"
    if step.kind == "exercise":
        return f"the exercise {step.id}, {course.exercises[step.id].title}"
    return f"{'read' if step.kind == 'read' else 'the quiz of'} lesson {step.lesson.number}, {step.lesson.title}"


def say_at(out: Page, course: Course, state: State) -> None:
    """Which task check, watch and hint are about, where that is not what is next."""
    from inlayer.learn.progress import what_next

    if state.current not in course.tasks or state.task(state.current).passed:
        return
    step = what_next(course, state)
    if step is None or step.key != f"task/{state.current}":
        out.line(f"You are at {state.current}, {course.tasks[state.current].title}")
        out.command("inlayer learn check")


def say_unkept(progress: Progress) -> None:
    """Say that nothing is recorded, where that is so."""
    if progress.unkept:
        sys.stdout.flush()
        sys.stderr.write(f"inlayer: nothing is recorded: {progress.unkept}\n")
        sys.stderr.flush()


@contextmanager
def stopping(progress: Progress) -> Iterator[None]:
    """Ctrl-C is one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stdout.flush()
        kept = "nothing is recorded" if progress.unkept else "what you did is kept"
        sys.stderr.write(f"\nstopped; {kept}\n")
        raise typer.Exit(130) from None


def in_short(question: Question) -> str:
    """Its text on one short line."""
    text = " ".join(question.text.split())
    return text if len(text) <= SHORT else text[: SHORT - 1].rstrip() + "…"


def say_questions(out: Page, questions: list[Question]) -> None:
    for one in questions[:MAX_QUESTIONS]:
        out.line(f"{in_short(one)} ({one.lesson})", indent=2)
    if len(questions) > MAX_QUESTIONS:
        out.line(f"and {len(questions) - MAX_QUESTIONS} more", indent=2)
