"""`inlayer learn exercise, quiz`: theory questions in the terminal.

- every answer is recorded immediately, so nothing is lost if the learner quits in the middle
- an empty line or the end of the input (Ctrl-D) quits; "?" reveals the answer of an exercise
- with --answer, one answer is graded without a prompt; the exit code is 0 if it is correct, 1 if not
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from inlayer.cli.learn.common import QuitError, SeedOption, command, interruptible, open_printer, open_service, prompt
from inlayer.cli.output import print_json
from inlayer.errors import InputError
from inlayer.files import quote
from inlayer.learn.course_steps import QuizRun
from inlayer.learn.questions import AnswerResult, Exercise, FreeTextQuestion, Question, TheoryQuestion, random_seed
from inlayer.learn.service import CourseService
from inlayer.learn.terminal import CoursePrinter

AnswerOption = Annotated[
    str | None, typer.Option(help="Grade this answer without prompting; exit code 0 if it is correct, 1 if not.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of prompting.")]


def grade_once(service: CourseService, question: TheoryQuestion, answer: str | None, *, as_json: bool) -> None:
    """Grade one answer and exit; without an answer, mark a self-checked exercise as done."""
    data = question.to_dict() | {"answer": answer, "correct": None}
    if isinstance(question, FreeTextQuestion):
        data |= {"message": question.sample_answer, "points": list(question.points)}
        if answer is None:
            data["correct"] = True
            service.record_exercise(question.id, correct=True)
    elif answer is None:
        raise InputError(f"--done is for self-checked exercises; {question.id} is graded: specify --answer")
    else:
        result = service.answer(question, answer)
        data |= {"correct": result.correct, "message": result.message}
        if isinstance(question, Question):
            data["reasons"] = dict(zip(data["options"], (option.reason for option in question.options), strict=True))
    if as_json:
        print_json(data)
    elif isinstance(question, FreeTextQuestion):
        open_printer().sample_answer(question, with_points=True)
    else:
        open_printer().answer_result(result)
    raise typer.Exit(1 if data["correct"] is False else 0)


def prompt_until(out: CoursePrinter, text: str, grade: Callable[[str], AnswerResult | None]) -> AnswerResult | None:
    """Ask until an answer can be graded; an empty line quits."""
    while True:
        if not (answer := prompt(text)):
            raise QuitError
        try:
            return grade(answer)
        except InputError as error:
            out.line(str(error), style="yellow")


# ---- exercises


@command(
    "inlayer learn exercise",
    "inlayer learn exercise table",
    "inlayer learn exercise table_memory --seed 7",
    'inlayer learn exercise table_memory --seed 7 --answer "525,336,576" --json',
)
def exercise(
    target: Annotated[str | None, typer.Argument(metavar="ID|LESSON")] = None,
    answer: AnswerOption = None,
    seed: SeedOption = None,
    done: Annotated[bool, typer.Option("--done")] = False,
    as_json: JsonOption = False,
) -> None:
    """Answer theory exercises: numbers and multiple choice are graded; you check written answers yourself.

    Options:
        target: An exercise, or a lesson for all its unanswered exercises. Default: the next one.
        done: Mark a self-checked exercise as done, once your answer covers every point.
    """
    service = open_service()
    chosen = service.find_exercises(target)
    if answer is None and not done and not as_json:
        out = open_printer()
        for drawn in chosen:
            ask_exercise(out, service, drawn, seed)
            out.line()
        out.next_step(service.overview())
        return
    if len(chosen) > 1:
        ids = ", ".join(drawn.id for drawn in chosen)
        raise InputError(f"{quote(target)} has {len(chosen)} open exercises; choose one of {ids}")
    if answer is not None and seed is None and service.state().record("exercise", chosen[0].id).seed is None:
        raise InputError(f"{chosen[0].id} has not been shown yet; show it first (with --json), or pass its --seed")
    question = service.draw_exercise(chosen[0], seed)
    if answer is not None or done:
        grade_once(service, question, None if done else answer, as_json=as_json)
    print_json(question.to_dict())


def ask_exercise(out: CoursePrinter, service: CourseService, exercise: Exercise, seed: int | None = None) -> None:
    """Ask until the answer is correct or revealed."""
    question = service.draw_exercise(exercise, seed)
    out.heading(f"{exercise.id}: {exercise.title} ({question.grading})")
    out.line()
    out.question(question)
    with interruptible(service, f"inlayer learn exercise {exercise.id}"):
        if isinstance(question, FreeTextQuestion):
            self_check(out, service, exercise, question)
            return
        grade = lambda answer: None if answer == "?" else service.answer(question, answer)  # noqa: E731
        while (result := prompt_until(out, "Your answer (? shows the solution, Enter quits): ", grade)) is not None:
            out.answer_result(result)
            if result.correct:
                return
        out.revealed(service.reveal_answer(question))


def self_check(out: CoursePrinter, service: CourseService, exercise: Exercise, question: FreeTextQuestion) -> None:
    """Let the learner compare their answer with the sample answer, point by point."""
    prompt("Write your answer here or on paper, then press Enter to see the sample answer: ")
    out.line()
    out.sample_answer(question)
    out.line("Does your answer make each of these points?")
    covered, total = 0, len(question.points)
    for point in question.points:
        out.line(point, indent=2)
        while (reply := prompt("    y or n: ").lower()) not in {"y", "yes", "n", "no"}:
            pass
        covered += reply.startswith("y")
    service.record_exercise(exercise.id, correct=covered == total)
    out.line(f"{covered} of {total} points, self-assessed.", style="bold")
    if covered < total:
        out.line("The exercise remains unfinished. Try it again with the missing points.")


# ---- quizzes


@command(
    "inlayer learn quiz",
    "inlayer learn quiz forward",
    "inlayer learn quiz forward --json --seed 7",
    "inlayer learn quiz --question hidden_states_shape --seed 7 --answer c",
)
def quiz(
    lesson: Annotated[str | None, typer.Argument(metavar="LESSON")] = None,
    question: Annotated[str | None, typer.Option(metavar="ID")] = None,
    answer: AnswerOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a quiz: every option is explained, and questions you miss come back.

    Options:
        lesson: Lesson. Default: the next quiz, missed questions first.
        question: Ask only this question.
    """
    if answer is not None and (question is None or seed is None):
        raise InputError("--answer needs --question and --seed, as printed by inlayer learn quiz --json")
    service = open_service()
    questions = [service.question(question)] if question is not None else service.quiz_questions(lesson)
    if answer is not None:
        grade_once(service, service.ask(questions[0].id, seed or 0), answer, as_json=as_json)
    if as_json:
        print_json({"questions": [service.ask(item.id, seed or 0).to_dict() for item in questions]})
        return
    out = open_printer()
    ask_quiz(out, service, questions, f"inlayer learn quiz {lesson or ''}".strip(), seed)
    out.line()
    out.next_step(service.overview())


def ask_quiz(
    out: CoursePrinter, service: CourseService, questions: list[Question], command: str, seed: int | None = None
) -> None:
    """Ask until each question has been answered correctly; `command` continues a quiz that the learner left."""
    run, number = QuizRun(questions, random_seed() if seed is None else seed), 0
    with service.progress.edit():  # checks early whether progress can be saved
        pass
    missed = {old.id for old in service.overview().due}
    with interruptible(service, command):
        while (current := run.question) is not None:
            repeated = run.repeated
            number += not repeated
            question = "Repeated question" if repeated else f"Question {number} of {run.n_questions}"
            lesson, is_due = service.course.lesson(current.lesson), current.id in missed and not repeated
            origin = f"repeated from lesson {lesson.number}: {lesson.title}" if is_due else lesson.id
            out.heading(f"{question} ({origin})")
            out.line()
            out.question(current)
            result = prompt_until(out, "Your answer, a letter (Enter quits): ", run.answer)
            assert result is not None
            before, due = service.record_answer(current.id, correct=result.correct, repeated=repeated)
            if result.correct:
                out.line(f"✓ Correct{repeat_note(before, due, repeated=repeated)}.", style="bold green")
                out.reasons(current)
            else:  # the other reasons would give the answer away
                out.line("✗ Incorrect. This question will come back.", style="bold red")
                out.markdown_line(result.message, 2, "dim")
            out.line()
    out.line(f"Correct on the first try: {run.n_questions - len(run.missed)} of {run.n_questions}.", style="bold")
    if run.missed:
        out.line(
            "You missed these. Each comes back until you answer it correctly on the first try in two more quizzes:"
        )
        out.question_list(current for current in questions if current.id in run.missed)


def repeat_note(before: int, due: int, *, repeated: bool) -> str:
    """Describe how often a missed question will come back."""
    if repeated:
        return "; because you missed it before, it will come back in another quiz"
    if due:
        return f"; it will come back in {'one more quiz' if due == 1 else f'{due} more quizzes'}"
    return "; it will not come back" if before else ""
