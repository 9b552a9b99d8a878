"""`inlayer learn`: what asks: exercise and quiz.

- each answer is remembered as soon as it is given: whoever leaves in the middle has lost nothing
- an empty line or the end of the input (Ctrl-D) ends it; "?" gives the answer away
- with --answer nothing is asked: one answer is judged, exit code 0 when it is right, 1 when not
"""

from __future__ import annotations

import json
import secrets
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.learn.files import open_progress, type_line
from inlayer.cli.learn.next_step import say_next, say_questions, say_unkept, stopping
from inlayer.errors import InputError
from inlayer.learn.questions import Asked, ChoiceQuestion, FreeTextQuestion, NumberQuestion
from inlayer.paths import quoted

if TYPE_CHECKING:
    from inlayer.cli.learn.page import Page
    from inlayer.learn.course import Course, Question
    from inlayer.learn.progress import Progress, State
    from inlayer.learn.questions import Exercise

__all__ = ["ask_exercise", "exercise", "fresh_seed", "kind_of", "quiz", "sit"]

SEEDS = 2**31
ANSWER = Annotated[
    str | None, typer.Option(help="Judge this answer and ask nothing; exit code 0 when it is right, 1 when not.")
]
SEED = Annotated[
    int | None, typer.Option(min=0, max=SEEDS - 1, help="What is drawn. The same one asks the same again.")
]
AS_JSON = Annotated[bool, typer.Option("--json", help="Print facts as JSON, and ask nothing.")]

EXERCISE_EXAMPLES = """Examples:

inlayer learn exercise

inlayer learn exercise table

inlayer learn exercise table/table_bytes --seed 7

inlayer learn exercise table/table_bytes --seed 7 --answer "2.35 GB" --json
"""
QUIZ_EXAMPLES = """Examples:

inlayer learn quiz

inlayer learn quiz forward

inlayer learn quiz forward --json --seed 7

inlayer learn quiz --question shape_of_hidden --seed 7 --answer b
"""


def fresh_seed() -> int:
    return secrets.randbelow(SEEDS)


def kind_of(asked: Asked) -> str:
    return "self-checked" if isinstance(asked, FreeTextQuestion) else "judged"


# ---- exercises


def exercise(
    what: Annotated[
        str | None,
        typer.Argument(metavar="ID|LESSON", help="An exercise, or all open ones of a lesson. Without, the next one."),
    ] = None,
    answer: ANSWER = None,
    seed: SEED = None,
    done: Annotated[
        bool, typer.Option("--done", help="Of one that no program can judge: your answer says what it should.")
    ] = False,
    as_json: AS_JSON = False,
) -> None:
    """Theory: numbers and choices are judged; an answer in words you check yourself, by a model answer."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import open_course

    course, progress = open_course(), open_progress()
    chosen = find_exercises(course, progress.read(), what)
    if answer is None and not done and not as_json:
        out = page()
        with stopping(progress):
            for number, one in enumerate(chosen):
                if number:
                    out.line()
                if not ask_exercise(out, progress, one, seed):
                    return
        out.line()
        say_next(out, course, progress.read())
        return
    if len(chosen) > 1:
        ids = ", ".join(one.id for one in chosen)
        raise InputError(f"{quoted(what)} has {len(chosen)} open exercises; name one: {ids}")
    if answer is not None and seed is None and progress.read().exercise(chosen[0].id).seed is None:
        raise InputError(f"{chosen[0].id} was not asked yet: ask it first (--json does), or give its --seed")
    asked, drawn = draw(progress, chosen[0], seed)
    if answer is None and not done:
        sys.stdout.write(json.dumps(question_told(chosen[0].id, asked, drawn)) + "\n")
        say_unkept(progress)
        return
    answer_once(progress, chosen[0], asked, drawn, answer, done=done, as_json=as_json)


def find_exercises(course: Course, state: State, what: str | None) -> list[Exercise]:
    """The one that is named; or the open ones of a lesson, all of them where none is open; or the next open one."""
    from inlayer.learn.course import guessed

    everyone = list(course.exercises.values())
    if what is None:
        still_open = [one for one in everyone if not state.exercise(one.id).done]
        if not still_open:
            raise InputError("every exercise is done; name one to do it again")
        unskipped = [one for one in still_open if f"exercise/{one.id}" not in state.skipped]
        return (unskipped or still_open)[:1]
    wanted = what.strip()
    if named := [one for one in everyone if wanted in (one.id, one.id.partition("/")[2])]:
        if len(named) > 1:
            raise InputError(f"{quoted(what)} is in several lessons: {', '.join(one.id for one in named)}")
        return named
    if "/" in wanted:
        if guess := guessed(wanted, course.exercises, near=0.8):
            raise InputError(f"there is no exercise {quoted(what)}; {guess}")
        course.lesson(wanted.partition("/")[0])  # says so where there is no such lesson
        ids = ", ".join(one.id for one in everyone if one.lesson == wanted.partition("/")[0])
        raise InputError(f"there is no exercise {quoted(what)}; that lesson has {ids}")
    try:
        of_lesson = list(course.lesson(wanted).exercises)
    except InputError:
        lessons = [lesson.id for lesson in course.lessons]
        short = [one.id.partition("/")[2] for one in everyone]
        guess = guessed(wanted, lessons + short) or f"the lessons are {', '.join(lessons)}"
        if wanted in course.tasks:
            guess = f"it is a task: inlayer learn next {wanted}"
        raise InputError(f"there is no exercise and no lesson {quoted(what)}; {guess}") from None
    return [one for one in of_lesson if not state.exercise(one.id).done] or of_lesson


def draw(progress: Progress, one: Exercise, seed: int | None) -> tuple[Asked, int]:
    """The exercise as it is asked: by a seed that is given, or by the one that still waits for its answer."""
    with progress.changing() as state:
        record = state.exercise(one.id)
        if seed is None:
            seed = record.seed if record.seed is not None else fresh_seed()
        record.seed = seed
    return one.ask(seed), seed


def question_told(name: str, asked: Asked, seed: int) -> dict[str, Any]:
    """A question as JSON has it, without its answer."""
    judged = not isinstance(asked, FreeTextQuestion)
    facts: dict[str, Any] = {"id": name, "seed": seed, "kind": asked.kind, "judged": judged, "text": asked.text}
    if isinstance(asked, ChoiceQuestion):
        facts["options"] = {chr(ord("a") + number): option.text for number, option in enumerate(asked.options)}
    if isinstance(asked, NumberQuestion):
        facts["unit"] = asked.unit
    return facts


def answer_once(
    progress: Progress, one: Exercise, asked: Asked, seed: int, answer: str | None, *, done: bool, as_json: bool
) -> None:
    """Judge one answer and exit."""
    from inlayer.cli.learn.page import page

    if isinstance(asked, FreeTextQuestion):
        right, message = (True if done else None), asked.model_answer
    elif answer is None:
        raise InputError(f"--done is for what no program can judge; {one.id} is judged: give --answer")
    else:
        judged = asked.judge(answer)
        right, message = judged.correct, judged.message
    if right is not None:
        with progress.changing() as state:
            state.note_exercise(one.id, correct=right)
    if as_json:
        facts = {**question_told(one.id, asked, seed), "answer": answer, "right": right, "message": message}
        if isinstance(asked, FreeTextQuestion):
            facts["points"] = list(asked.points)
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        out = page()
        if isinstance(asked, FreeTextQuestion):
            out.model_answer(asked)
            for point in asked.points:
                out.line(f"[ ] {point}", indent=2)
        else:
            say_judged(out, correct=bool(right), message=message)
    say_unkept(progress)
    raise typer.Exit(1 if right is False else 0)


def ask_exercise(out: Page, progress: Progress, one: Exercise, seed: int | None) -> bool:
    """Ask until it is right, given away, or the learner leaves; False then."""
    asked, _ = draw(progress, one, seed)
    say_unkept(progress)
    out.heading(f"{one.id}: {one.title} ({kind_of(asked)})")
    out.line()
    out.asked(asked)
    if isinstance(asked, FreeTextQuestion):
        return self_check(out, progress, one, asked)
    while True:
        said = type_line("Your answer (? gives it away, Enter leaves): ")
        if not said:
            say_left(out, progress, f"inlayer learn exercise {one.id}")
            return False
        if said == "?":
            give_away(out, progress, one, asked)
            return True
        try:
            judged = asked.judge(said)
        except InputError as error:
            out.line(str(error), style="yellow")
            continue
        with progress.changing() as state:
            state.note_exercise(one.id, correct=judged.correct)
        say_judged(out, correct=judged.correct, message=judged.message)
        if judged.correct:
            return True


def self_check(out: Page, progress: Progress, one: Exercise, free: FreeTextQuestion) -> bool:
    """The learner writes, compares point by point, and says whether the answer holds."""
    said = type_line("Your answer, in a line or on paper; then Enter shows the model answer: ")
    if said is None:
        say_left(out, progress, f"inlayer learn exercise {one.id}")
        return False
    out.line()
    out.model_answer(free)
    out.line("Does yours say:")
    held = 0
    for point in free.points:
        out.line(point, indent=2)
        reply = yes_or_no("    y or n: ")
        if reply is None:
            say_left(out, progress, f"inlayer learn exercise {one.id}")
            return False
        held += reply
    correct = held == len(free.points)
    with progress.changing() as state:
        state.note_exercise(one.id, correct=correct)
    out.line(f"{held} of {len(free.points)} points, by your own judgment.", style="bold")
    if not correct:
        out.line("It stays open: write it again with what was missing.")
    return True


def yes_or_no(prompt: str) -> bool | None:
    """Asks until it is one of them; None at the end of the input."""
    while (said := type_line(prompt)) is not None:
        if said.lower() in {"y", "yes", "n", "no"}:
            return said.lower().startswith("y")
    return None


def give_away(out: Page, progress: Progress, one: Exercise, asked: NumberQuestion | ChoiceQuestion) -> None:
    """Show the answer; the exercise stays to be done."""
    with progress.changing() as state:
        state.note_given_away(one.id)
    if isinstance(asked, NumberQuestion):
        out.line(asked.written, style="bold")
        out.markdown(asked.explanation)
    else:
        out.reasons(asked)
    out.line("It stays open, and asks with other numbers the next time.", style="dim")


def say_judged(out: Page, *, correct: bool, message: str) -> None:
    out.line("✓ Right." if correct else "✗ Not right.", style="bold green" if correct else "bold red")
    out.markdown(message)


def say_left(out: Page, progress: Progress, command: str) -> None:
    kept = "nothing is recorded" if progress.unkept else "what you did is kept"
    out.line(f"Left here; {kept}. Go on with:")
    out.command(command)


# ---- quiz


def quiz(
    lesson: Annotated[
        str | None, typer.Argument(metavar="LESSON", help="Without one, the next quiz; missed questions come first.")
    ] = None,
    question: Annotated[str | None, typer.Option(metavar="ID", help="This question alone.")] = None,
    answer: ANSWER = None,
    seed: SEED = None,
    as_json: AS_JSON = False,
) -> None:
    """A quiz: every option has its reason; a question you miss comes back, now and the next times."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.course import guessed, open_course
    from inlayer.learn.quiz import ask, lesson_for_quiz, to_ask

    if answer is not None and (question is None or seed is None):
        raise InputError(
            "--answer is to one question in one order: give --question and --seed, as inlayer learn quiz --json tells"
        )

    course, progress = open_course(), open_progress()
    state = progress.read()
    if question is not None:
        if question not in course.questions:
            guess = guessed(question, course.questions) or "inlayer learn quiz --json lists those to ask"
            raise InputError(f"there is no question {quoted(question)}; {guess}")
        questions = [course.questions[question]]
    else:
        chosen = course.lesson(lesson) if lesson is not None else lesson_for_quiz(course, state)
        questions = to_ask(course, state, chosen)
    if not questions:
        raise InputError("every quiz is done and nothing is due; name a lesson to take its quiz again")
    if answer is not None:
        judge_question(progress, questions[0], answer, seed or 0, as_json=as_json)
    if as_json:
        told = [question_told(one.id, ask(one, seed or 0), seed or 0) | {"lesson": one.lesson} for one in questions]
        sys.stdout.write(json.dumps({"questions": told}) + "\n")
        return
    again = f"inlayer learn quiz {lesson}" if lesson is not None else "inlayer learn quiz"
    out = page()
    with stopping(progress):
        done = sit(out, progress, questions, fresh_seed() if seed is None else seed, again)
    if done:
        out.line()
        say_next(out, course, progress.read())


def judge_question(progress: Progress, one: Question, answer: str, seed: int, *, as_json: bool) -> None:
    """Judge one answer and exit."""
    from inlayer.cli.learn.page import page
    from inlayer.learn.quiz import ask, note_answer

    choice = ask(one, seed)
    judged = choice.judge(answer)
    with progress.changing() as state:
        note_answer(state, one.id, correct=judged.correct)
    if as_json:
        facts = question_told(one.id, choice, seed)
        facts |= {"lesson": one.lesson, "answer": answer, "right": judged.correct, "message": judged.message}
        facts["reasons"] = {chr(ord("a") + number): option.reason for number, option in enumerate(choice.options)}
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        out = page()
        say_judged(out, correct=judged.correct, message=judged.message)
    say_unkept(progress)
    raise typer.Exit(0 if judged.correct else 1)


def sit(out: Page, progress: Progress, questions: list[Question], seed: int, command: str) -> bool:
    """Ask them all, the missed ones again, until each was right once; False where the learner leaves.

    `command` is how to go on then.
    """
    from inlayer.learn.quiz import Sitting, note_answer

    with progress.changing():
        pass  # can it be kept at all?
    say_unkept(progress)
    sitting, number = Sitting(questions, seed), 0
    while (one := sitting.question) is not None:
        again, choice = sitting.again, sitting.choice
        number += not again
        place = "again" if again else f"{number} of {sitting.n_questions}"
        out.heading(f"Question {place} ({one.lesson})")
        out.line()
        out.asked(choice)
        while True:
            said = type_line("Your answer, a letter (Enter leaves): ")
            if not said:
                say_left(out, progress, command)
                return False
            try:
                judged = sitting.answer(said)
            except InputError as error:
                out.line(str(error), style="yellow")
                continue
            break
        with progress.changing() as state:
            was_due = state.question(one.id).due
            note_answer(state, one.id, correct=judged.correct, again=again)
            due = state.question(one.id).due
        if judged.correct:
            out.line(f"✓ Right{going_away(was_due, due, again=again)}.", style="bold green")
            out.reasons(choice)
        else:  # why the others are wrong, or right, would give it away
            out.line("✗ Not right; it comes back.", style="bold red")
            out.markdown_below(judged.message, indent=2)
        out.line()
    first = sitting.n_questions - len(sitting.missed)
    out.line(f"Right at once: {first} of {sitting.n_questions}.", style="bold")
    if sitting.missed:
        out.line("Missed, to come back; right at once in two other sittings and they are gone:")
        say_questions(out, [one for one in questions if one.id in sitting.missed])
    return True


def going_away(was_due: int, due: int, *, again: bool) -> str:
    """How often a question that was missed has still to be right."""
    if again:
        return "; it was missed, so it comes back in another sitting"
    if due:
        return f"; {'once' if due == 1 else f'{due} times'} more in another sitting and it is gone"
    return "; it was missed before and is gone now" if was_due else ""
