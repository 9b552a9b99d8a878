"""`inlayer learn exercise, quiz`: theory questions in the terminal.

- every answer is recorded at once, so leaving in the middle loses nothing
- an empty line or the end of the input (Ctrl-D) leaves; "?" reveals the answer of an exercise
- with --answer nothing is asked: one answer is graded; exit code 0 if it is correct, 1 if not
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.learn.common import (
    SEED,
    command,
    interruptible,
    open_printer,
    open_service,
    prompt,
    saved_note,
    write_json,
)
from inlayer.errors import InputError
from inlayer.files import quoted
from inlayer.learn.questions import AnswerResult, ChoiceQuestion, FreeTextQuestion, NumberQuestion, TheoryQuestion

if TYPE_CHECKING:
    from collections.abc import Callable

    from inlayer.learn.course import Question
    from inlayer.learn.questions import Exercise
    from inlayer.learn.service import AskedQuestion, CourseService
    from inlayer.learn.terminal import CoursePrinter

__all__ = ["ask_exercise", "ask_quiz", "exercise", "grading_of", "quiz"]

ANSWER = Annotated[
    str | None, typer.Option(help="Grade this answer without asking; exit code 0 if it is correct, 1 if not.")
]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON without asking.")]


def grading_of(question: TheoryQuestion) -> str:
    return "self-checked" if isinstance(question, FreeTextQuestion) else "graded"


def question_json(asked: AskedQuestion) -> dict[str, Any]:
    """A question without its answer."""
    question = asked.question
    data: dict[str, Any] = {"id": asked.id, "lesson": asked.lesson, "seed": asked.seed, "kind": question.kind}
    data |= {"text": question.text, "graded": grading_of(question) == "graded"}
    if isinstance(question, ChoiceQuestion):
        data["options"] = {chr(ord("a") + number): option.text for number, option in enumerate(question.options)}
    if isinstance(question, NumberQuestion):
        data["unit"] = question.unit
    return data


def grade_once(service: CourseService, asked: AskedQuestion, answer: str | None, *, as_json: bool) -> None:
    """Grade one answer and exit; without an answer, mark a self-checked exercise as done."""
    question, data = asked.question, question_json(asked) | {"answer": answer, "correct": None}
    if isinstance(question, FreeTextQuestion):
        data |= {"message": question.model_answer, "points": list(question.points)}
        if answer is None:
            data["correct"] = True
            service.record_exercise(asked.id, correct=True)
    elif answer is None:
        raise InputError(f"--done is for self-checked exercises; {asked.id} is graded: give --answer")
    else:
        result = service.answer(asked, answer)
        data |= {"correct": result.correct, "message": result.message}
        if not asked.title and isinstance(question, ChoiceQuestion):
            data["reasons"] = {chr(ord("a") + number): option.reason for number, option in enumerate(question.options)}
    if as_json:
        write_json(data)
    elif isinstance(question, FreeTextQuestion):
        open_printer().model_answer(question, with_points=True)
    else:
        open_printer().answer_result(result)
    raise typer.Exit(1 if data["correct"] is False else 0)


class LeftError(Exception):
    """The learner left in the middle of a question."""


def asking(out: CoursePrinter, service: CourseService, command: str, ask: Callable[[], None]) -> bool:
    """Ask questions; False if the learner leaves. `command` continues."""
    try:
        with interruptible(service):
            ask()
    except LeftError:
        out.line(f"Stopped here; {saved_note(service)}. To continue:")
        out.command(command)
        return False
    return True


def prompt_until(out: CoursePrinter, text: str, grade: Callable[[str], AnswerResult | None]) -> AnswerResult | None:
    """Ask until an answer can be graded."""
    while True:
        if not (answer := prompt(text)):
            raise LeftError
        try:
            return grade(answer)
        except InputError as error:
            out.line(str(error), style="yellow")


# ---- exercises


@command("exercise", "", "table", "table_memory --seed 7", 'table_memory --seed 7 --answer "525,336,576" --json')
def exercise(
    what: Annotated[
        str | None,
        typer.Argument(metavar="ID|LESSON", help="Exercise, or all open ones of a lesson. \\[default: the next one]"),
    ] = None,
    answer: ANSWER = None,
    seed: SEED = None,
    done: Annotated[
        bool, typer.Option("--done", help="Mark a self-checked exercise as done: your answer makes every point.")
    ] = False,
    as_json: AS_JSON = False,
) -> None:
    """Answer theory exercises: numbers and choices are graded, answers in words you check yourself."""
    service = open_service()
    chosen = service.find_exercises(what)
    if answer is None and not done and not as_json:
        out = open_printer()
        for one in chosen:
            if not ask_exercise(out, service, one, seed):
                return
            out.line()
        out.next_step(service.overview())
        return
    if len(chosen) > 1:
        ids = ", ".join(one.id for one in chosen)
        raise InputError(f"{quoted(what)} has {len(chosen)} open exercises; name one of {ids}")
    if answer is not None and seed is None and service.state().exercise(chosen[0].id).seed is None:
        raise InputError(f"{chosen[0].id} has not been asked yet; ask it first (with --json), or give its --seed")
    asked = service.draw_exercise(chosen[0], seed)
    if answer is not None or done:
        grade_once(service, asked, None if done else answer, as_json=as_json)
    write_json(question_json(asked))


def ask_exercise(out: CoursePrinter, service: CourseService, one: Exercise, seed: int | None) -> bool:
    """Ask until the answer is correct or revealed; False if the learner leaves."""
    asked = service.draw_exercise(one, seed)
    question = asked.question
    out.heading(f"{one.id}: {one.title} ({grading_of(question)})")
    out.line()
    out.question(question)

    def grade(answer: str) -> AnswerResult | None:
        return None if answer == "?" else service.answer(asked, answer)

    def ask() -> None:
        if isinstance(question, FreeTextQuestion):
            return self_check(out, service, one, question)
        while (result := prompt_until(out, "Your answer (? reveals it, Enter leaves): ", grade)) is not None:
            out.answer_result(result)
            if result.correct:
                return None
        revealed = service.reveal_answer(asked)
        if isinstance(revealed, NumberQuestion):
            out.line(revealed.formatted_answer, style="bold")
            out.markdown(revealed.explanation)
        else:
            out.reasons(revealed)
        return out.line("The exercise stays open and will use other numbers next time.", style="dim")

    return asking(out, service, f"inlayer learn exercise {one.id}", ask)


def self_check(out: CoursePrinter, service: CourseService, one: Exercise, question: FreeTextQuestion) -> None:
    """Let the learner compare their answer with the model answer, point by point."""
    if prompt("Write your answer here or on paper, then press Enter to see the model answer: ") is None:
        raise LeftError
    out.line()
    out.model_answer(question)
    out.line("Does your answer make this point?")
    made = 0
    for point in question.points:
        out.line(point, indent=2)
        while (reply := prompt("    y or n: ")) is not None and reply.lower() not in {"y", "yes", "n", "no"}:
            pass
        if reply is None:
            raise LeftError
        made += reply.lower().startswith("y")
    complete = made == len(question.points)
    service.record_exercise(one.id, correct=complete)
    out.line(f"{made} of {len(question.points)} points, by your own assessment.", style="bold")
    if not complete:
        out.line("The exercise stays open. Try it again with the missing points.")


# ---- quizzes


@command("quiz", "", "forward", "forward --json --seed 7", "--question hidden_states_shape --seed 7 --answer c")
def quiz(
    lesson: Annotated[
        str | None, typer.Argument(metavar="LESSON", help="Lesson. \\[default: the next quiz, missed questions first]")
    ] = None,
    question: Annotated[str | None, typer.Option(metavar="ID", help="Ask only this question.")] = None,
    answer: ANSWER = None,
    seed: SEED = None,
    as_json: AS_JSON = False,
) -> None:
    """Take a quiz: every option has a reason, and a question you miss returns."""
    if answer is not None and (question is None or seed is None):
        raise InputError("--answer needs --question and --seed, as printed by inlayer learn quiz --json")
    service = open_service()
    questions = [service.question(question)] if question is not None else service.quiz_questions(lesson)
    if answer is not None:
        grade_once(service, service.ask(questions[0].id, seed or 0), answer, as_json=as_json)
    if as_json:
        write_json({"questions": [question_json(service.ask(one.id, seed or 0)) for one in questions]})
        return
    out = open_printer()
    if ask_quiz(out, service, questions, seed, f"inlayer learn quiz {lesson or ''}".strip()):
        out.line()
        out.next_step(service.overview())


def ask_quiz(
    out: CoursePrinter, service: CourseService, questions: list[Question], seed: int | None, command: str
) -> bool:
    """Ask until each question was answered correctly; False if the learner leaves. `command` continues the quiz."""
    from inlayer.learn.quiz import QuizRun
    from inlayer.learn.service import random_seed

    run = QuizRun(questions, random_seed() if seed is None else seed)
    with service.edit():  # finds out early whether progress can be saved
        pass

    def ask() -> None:
        number = 0
        while (one := run.question) is not None:
            repeated, choice = run.repeated, run.choice
            number += not repeated
            out.heading(f"Question {'again' if repeated else f'{number} of {run.n_questions}'} ({one.lesson})")
            out.line()
            out.question(choice)
            result = prompt_until(out, "Your answer, a letter (Enter leaves): ", run.answer)
            correct = result is not None and result.correct
            before, due = service.record_answer(one.id, correct=correct, repeated=repeated)
            if correct:
                out.line(f"✓ Correct{repeat_note(before, due, repeated=repeated)}.", style="bold green")
                out.reasons(choice)
            elif result is not None:  # the other reasons would give the answer away
                out.line("✗ Not correct; the question returns.", style="bold red")
                out.markdown_line(result.message, 2, "dim")
            out.line()

    if not asking(out, service, command, ask):
        return False
    out.line(f"Correct at the first try: {run.n_questions - len(run.missed)} of {run.n_questions}.", style="bold")
    if run.missed:
        out.line("You missed these; each returns until it is correct at the first try in two more quizzes:")
        out.question_list(one for one in questions if one.id in run.missed)
    return True


def repeat_note(before: int, due: int, *, repeated: bool) -> str:
    """How often a missed question still returns."""
    if repeated:
        return "; because you missed it before, it returns in another quiz"
    if due:
        return f"; it returns in {'one more quiz' if due == 1 else f'{due} more quizzes'}"
    return "; it will not return" if before else ""
