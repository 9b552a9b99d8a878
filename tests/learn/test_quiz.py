"""Quizzes: every question is asked until it is answered correctly; a missed one returns in this and later quizzes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import InputError
from inlayer.learn.course import Question
from inlayer.learn.progress import ProgressState
from inlayer.learn.questions import Option
from inlayer.learn.quiz import QuizRun, due_questions, note_answer, quiz_questions, shuffle_options, unfinished_lesson
from tests.learn.small import make_course


def make(name: str, options: int = 3) -> Question:
    made = tuple(
        Option(text=f"{name}{number}", correct=number == 0, reason=f"why {number}") for number in range(options)
    )
    return Question(id=name, lesson="x", text=name, options=made)


def letter(sitting: QuizRun, *, correct: bool) -> str:
    return next(
        chr(ord("a") + number) for number, option in enumerate(sitting.choice.options) if option.correct is correct
    )


def test_option_order_depends_on_the_seed() -> None:
    question = make("q", 5)
    orders = {tuple(option.text for option in shuffle_options(question, seed).options) for seed in range(30)}
    assert len(orders) > 10
    assert shuffle_options(question, 7) == shuffle_options(question, 7)
    assert set(shuffle_options(question, 7).options) == set(question.options)


def test_a_missed_question_returns_after_two_others() -> None:
    sitting, asked = QuizRun([make(name) for name in "abcd"], seed=1), []
    while (question := sitting.question) is not None:
        asked.append(question.id)
        first = asked.count(question.id) == 1
        assert sitting.repeated is not first
        judged = sitting.answer(letter(sitting, correct=not (first and question.id in "ad")))
        assert judged.message.startswith("why")
    assert asked == ["a", "b", "c", "a", "d", "d"]
    assert (sitting.missed, sitting.n_questions) == (["a", "d"], 4)


def test_an_invalid_letter_changes_nothing() -> None:
    sitting = QuizRun([make("a")], seed=0)
    for said in ("", "d", "1", "ab", "é"):
        with pytest.raises(InputError, match="not one of the options"):
            sitting.answer(said)
    assert (sitting.n_asked, sitting.missed) == (0, [])
    assert sitting.answer(f" ({letter(sitting, correct=True).upper()}) ").correct
    assert sitting.question is None
    assert not sitting.repeated


def test_a_missed_question_is_due_in_two_later_quizzes(tmp_path: Path) -> None:
    course, state = make_course(tmp_path), ProgressState()
    first, second = course.lessons
    assert unfinished_lesson(course, state) is first
    note_answer(state, "first_one", correct=False)
    note_answer(state, "first_one", correct=True, repeated=True)
    note_answer(state, "first_two", correct=True)
    assert unfinished_lesson(course, state) is second
    assert [question.id for question in due_questions(course, state)] == ["first_one"]
    assert [question.id for question in quiz_questions(course, state, second)] == [
        "first_one",
        "second_one",
        "second_two",
    ]
    assert [question.id for question in quiz_questions(course, state, first)] == ["first_one", "first_two"]
    note_answer(state, "first_one", correct=True)
    assert [question.id for question in due_questions(course, state)] == ["first_one"]
    note_answer(state, "first_one", correct=True)
    assert due_questions(course, state) == []
    del state.questions["first_two"]  # never asked, so it comes before answered ones
    assert [question.id for question in quiz_questions(course, state, first)] == ["first_two", "first_one"]
    note_answer(state, "first_two", correct=True)
    for name in ("second_one", "second_two"):
        note_answer(state, name, correct=True)
    assert unfinished_lesson(course, state) is None
    assert quiz_questions(course, state, None) == []
    assert (state.questions["first_one"].asked, state.questions["first_one"].missed) == (4, 1)


@given(st.integers(0, 6), st.lists(st.booleans(), max_size=12), st.integers(0, 2**31))
def test_every_question_is_correct_in_the_end(n: int, answers: list[bool], seed: int) -> None:
    """After finitely many wrong answers a quiz ends, and every question was answered correctly once."""
    sitting, state = QuizRun([make(f"q{number}") for number in range(n)], seed), ProgressState()
    wishes = iter(answers)
    for _ in range(n + len(answers)):
        if (question := sitting.question) is None:
            break
        again, right = sitting.repeated, next(wishes, True)
        assert sitting.answer(letter(sitting, correct=right)).correct is right
        note_answer(state, question.id, correct=right, repeated=again)
    assert sitting.question is None
    assert all(record.right for record in state.questions.values())
    assert len(state.questions) == n
    assert {name for name, record in state.questions.items() if record.due} == set(sitting.missed)
