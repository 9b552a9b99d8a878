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
    examples,
    interruptible,
    open_printer,
    open_service,
    prompt,
    report_unsaved,
    saved_note,
    write_json,
)
from inlayer.errors import InputError
from inlayer.files import quoted
from inlayer.learn.questions import ChoiceQuestion, FreeTextQuestion, NumberQuestion, TheoryQuestion

if TYPE_CHECKING:
    from inlayer.learn.course import Question
    from inlayer.learn.questions import Exercise
    from inlayer.learn.service import CourseService, DrawnExercise
    from inlayer.learn.terminal import CoursePrinter

__all__ = ["ask_exercise", "ask_quiz", "exercise", "grading_of", "quiz"]

ANSWER = Annotated[
    str | None, typer.Option(help="Grade this answer without asking; exit code 0 if it is correct, 1 if not.")
]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print JSON without asking.")]
EXERCISE_EXAMPLES = examples(
    "inlayer learn exercise",
    "inlayer learn exercise table",
    "inlayer learn exercise table/table_bytes --seed 7",
    'inlayer learn exercise table/table_bytes --seed 7 --answer "2.35 GB" --json',
)
QUIZ_EXAMPLES = examples(
    "inlayer learn quiz",
    "inlayer learn quiz forward",
    "inlayer learn quiz forward --json --seed 7",
    "inlayer learn quiz --question shape_of_hidden --seed 7 --answer b",
)


def grading_of(question: TheoryQuestion) -> str:
    return "self-checked" if isinstance(question, FreeTextQuestion) else "graded"


def question_json(name: str, question: TheoryQuestion, seed: int) -> dict[str, Any]:
    """A question without its answer."""
    data: dict[str, Any] = {"id": name, "seed": seed, "kind": question.kind, "text": question.text}
    data["graded"] = grading_of(question) == "graded"
    if isinstance(question, ChoiceQuestion):
        data["options"] = {chr(ord("a") + number): option.text for number, option in enumerate(question.options)}
    if isinstance(question, NumberQuestion):
        data["unit"] = question.unit
    return data


def show_left(out: CoursePrinter, service: CourseService, command: str) -> None:
    out.line(f"Stopped here; {saved_note(service)}. To continue:")
    out.command(command)


# ---- exercises


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
        with interruptible(service):
            for number, one in enumerate(chosen):
                if number:
                    out.line()
                if not ask_exercise(out, service, one, seed):
                    return
        out.line()
        out.next_step(service.overview())
        return
    if len(chosen) > 1:
        ids = ", ".join(one.id for one in chosen)
        raise InputError(f"{quoted(what)} has {len(chosen)} open exercises; name one of {ids}")
    if answer is not None and seed is None and not service.was_asked(chosen[0]):
        raise InputError(f"{chosen[0].id} has not been asked yet; ask it first (with --json), or give its --seed")
    drawn = service.draw_exercise(chosen[0], seed)
    if answer is None and not done:
        write_json(question_json(chosen[0].id, drawn.question, drawn.seed))
        report_unsaved(service)
        return
    grade_once(service, drawn, answer, done=done, as_json=as_json)


def grade_once(service: CourseService, drawn: DrawnExercise, answer: str | None, *, done: bool, as_json: bool) -> None:
    """Grade one answer and exit."""
    question, correct = drawn.question, None
    result = None
    if isinstance(question, FreeTextQuestion):
        if done:
            correct = True
            service.record_exercise(drawn.exercise, correct=True)
    elif answer is None:
        raise InputError(f"--done is for self-checked exercises; {drawn.exercise.id} is graded: give --answer")
    else:
        result = service.answer_exercise(drawn, answer)
        correct = result.correct
    if as_json:
        data = question_json(drawn.exercise.id, question, drawn.seed) | {"answer": answer, "correct": correct}
        if isinstance(question, FreeTextQuestion):
            data |= {"message": question.model_answer, "points": list(question.points)}
        elif result is not None:
            data["message"] = result.message
        write_json(data)
    elif isinstance(question, FreeTextQuestion):
        open_printer().model_answer(question, with_points=True)
    elif result is not None:
        open_printer().answer_result(result)
    report_unsaved(service)
    raise typer.Exit(1 if correct is False else 0)


def ask_exercise(out: CoursePrinter, service: CourseService, one: Exercise, seed: int | None) -> bool:
    """Ask until the answer is correct or revealed; False if the learner leaves."""
    drawn = service.draw_exercise(one, seed)
    report_unsaved(service)
    out.heading(f"{one.id}: {one.title} ({grading_of(drawn.question)})")
    out.line()
    out.question(drawn.question)
    if isinstance(drawn.question, FreeTextQuestion):
        return self_check(out, service, one, drawn.question)
    while True:
        answer = prompt("Your answer (? reveals it, Enter leaves): ")
        if not answer:
            show_left(out, service, f"inlayer learn exercise {one.id}")
            return False
        if answer == "?":
            reveal(out, service, drawn)
            return True
        try:
            result = service.answer_exercise(drawn, answer)
        except InputError as error:
            out.line(str(error), style="yellow")
            continue
        out.answer_result(result)
        if result.correct:
            return True


def self_check(out: CoursePrinter, service: CourseService, one: Exercise, question: FreeTextQuestion) -> bool:
    """Let the learner compare their answer with the model answer, point by point."""
    command = f"inlayer learn exercise {one.id}"
    if prompt("Write your answer here or on paper, then press Enter to see the model answer: ") is None:
        show_left(out, service, command)
        return False
    out.line()
    out.model_answer(question)
    out.line("Does your answer make this point?")
    made = 0
    for point in question.points:
        out.line(point, indent=2)
        reply = yes_or_no("    y or n: ")
        if reply is None:
            show_left(out, service, command)
            return False
        made += reply
    complete = made == len(question.points)
    service.record_exercise(one, correct=complete)
    out.line(f"{made} of {len(question.points)} points, by your own assessment.", style="bold")
    if not complete:
        out.line("The exercise stays open. Try it again with the missing points.")
    return True


def yes_or_no(text: str) -> bool | None:
    """Ask until the reply is yes or no; None at the end of the input."""
    while (reply := prompt(text)) is not None:
        if reply.lower() in {"y", "yes", "n", "no"}:
            return reply.lower().startswith("y")
    return None


def reveal(out: CoursePrinter, service: CourseService, drawn: DrawnExercise) -> None:
    """Show the answer; the exercise stays open."""
    service.reveal_answer(drawn)
    if isinstance(drawn.question, NumberQuestion):
        out.line(drawn.question.formatted_answer, style="bold")
        out.markdown(drawn.question.explanation)
    elif isinstance(drawn.question, ChoiceQuestion):
        out.reasons(drawn.question)
    out.line("The exercise stays open and will use other numbers next time.", style="dim")


# ---- quizzes


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
    from inlayer.learn.quiz import shuffle_options

    if answer is not None and (question is None or seed is None):
        raise InputError("--answer needs --question and --seed, as printed by inlayer learn quiz --json")
    service = open_service()
    questions = [service.question(question)] if question is not None else service.quiz_questions(lesson)
    if answer is not None:
        grade_question(service, questions[0], answer, seed or 0, as_json=as_json)
    if as_json:
        order = seed or 0
        listed = [
            question_json(one.id, shuffle_options(one, order), order) | {"lesson": one.lesson} for one in questions
        ]
        write_json({"questions": listed})
        return
    out = open_printer()
    with interruptible(service):
        done = ask_quiz(out, service, questions, seed, f"inlayer learn quiz {lesson or ''}".strip())
    if done:
        out.line()
        out.next_step(service.overview())


def grade_question(service: CourseService, one: Question, answer: str, seed: int, *, as_json: bool) -> None:
    """Grade one answer and exit."""
    choice, result = service.answer_question(one, seed, answer)
    if as_json:
        data = question_json(one.id, choice, seed) | {"lesson": one.lesson, "answer": answer}
        data |= {"correct": result.correct, "message": result.message}
        data["reasons"] = {chr(ord("a") + number): option.reason for number, option in enumerate(choice.options)}
        write_json(data)
    else:
        open_printer().answer_result(result)
    report_unsaved(service)
    raise typer.Exit(0 if result.correct else 1)


def ask_quiz(
    out: CoursePrinter, service: CourseService, questions: list[Question], seed: int | None, command: str
) -> bool:
    """Ask until each question was answered correctly; False if the learner leaves. `command` continues the quiz."""
    run, number = service.start_quiz(questions, seed), 0
    report_unsaved(service)
    while (one := run.question) is not None:
        repeated, choice = run.repeated, run.choice
        number += not repeated
        out.heading(f"Question {'again' if repeated else f'{number} of {run.n_questions}'} ({one.lesson})")
        out.line()
        out.question(choice)
        while True:
            answer = prompt("Your answer, a letter (Enter leaves): ")
            if not answer:
                show_left(out, service, command)
                return False
            try:
                result = run.answer(answer)
                break
            except InputError as error:
                out.line(str(error), style="yellow")
        before, due = service.record_answer(one, correct=result.correct, repeated=repeated)
        if result.correct:
            out.line(f"✓ Correct{repeat_note(before, due, repeated=repeated)}.", style="bold green")
            out.reasons(choice)
        else:  # the other reasons would give the answer away
            out.line("✗ Not correct; the question returns.", style="bold red")
            out.markdown_line(result.message, 2, "dim")
        out.line()
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
