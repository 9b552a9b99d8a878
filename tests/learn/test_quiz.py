"""Quizzes: every question is asked until it is answered correctly; a missed one returns in this and later quizzes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import InputError
from inlayer.learn.course_steps import CourseOverview, QuizRun
from inlayer.learn.progress_file import ProgressState
from inlayer.learn.questions import Option, Question
from tests.learn.small import make_course


def make(name: str, options: int = 3) -> Question:
    made = tuple(
        Option(text=f"{name}{number}", correct=number == 0, reason=f"why {number}") for number in range(options)
    )
    return Question(id=name, lesson="x", text=name, options=made)


def letter(quiz: QuizRun, *, correct: bool) -> str:
    assert quiz.question is not None
    return "abcde"[[option.correct for option in quiz.question.options].index(correct)]


def test_option_order_depends_on_the_seed() -> None:
    question = make("q", 5)
    orders = {tuple(option.text for option in question.ask(seed).options) for seed in range(30)}
    assert len(orders) > 10
    assert question.ask(7) == question.ask(7)
    assert set(question.ask(7).options) == set(question.options)


def test_a_missed_question_returns_after_two_others() -> None:
    quiz, asked = QuizRun([make(name) for name in "abcd"], seed=1), []
    while (question := quiz.question) is not None:
        asked.append(question.id)
        first = asked.count(question.id) == 1
        assert quiz.repeated is not first
        judged = quiz.answer(letter(quiz, correct=not (first and question.id in "ad")))
        assert judged.message.startswith("why")
    assert asked == ["a", "b", "c", "a", "d", "d"]
    assert (quiz.missed, quiz.n_questions) == (["a", "d"], 4)


def test_an_invalid_letter_changes_nothing() -> None:
    quiz = QuizRun([make("a")], seed=0)
    for letters in ("", "d", "1", "ab", "é"):
        with pytest.raises(InputError, match="not one of the options"):
            quiz.answer(letters)
    assert (quiz.n_answers, quiz.missed) == (0, [])
    assert quiz.answer(f" ({letter(quiz, correct=True).upper()}) ").correct
    assert quiz.question is None
    assert not quiz.repeated


def test_a_missed_question_is_due_in_two_later_quizzes(tmp_path: Path) -> None:
    course, state = make_course(tmp_path), ProgressState()
    first, second = course.lessons
    assert CourseOverview(course, state).next_quiz is first
    state.record("question", "first_one").record_answer(correct=False)
    state.record("question", "first_one").record_answer(correct=True, repeated=True)
    state.record("question", "first_two").record_answer(correct=True)
    assert CourseOverview(course, state).next_quiz is second
    assert [question.id for question in CourseOverview(course, state).due] == ["first_one"]
    assert [question.id for question in CourseOverview(course, state).quiz(second)] == [
        "first_one",
        "second_one",
        "second_two",
    ]
    assert [question.id for question in CourseOverview(course, state).quiz(first)] == ["first_one", "first_two"]
    state.record("question", "first_one").record_answer(correct=True)
    assert [question.id for question in CourseOverview(course, state).due] == ["first_one"]
    state.record("question", "first_one").record_answer(correct=True)
    assert CourseOverview(course, state).due == []
    del state.records["question/first_two"]  # never asked, so it comes before answered ones
    assert [question.id for question in CourseOverview(course, state).quiz(first)] == ["first_two", "first_one"]
    state.record("question", "first_two").record_answer(correct=True)
    for name in ("second_one", "second_two"):
        state.record("question", name).record_answer(correct=True)
    assert CourseOverview(course, state).next_quiz is None
    assert CourseOverview(course, state).quiz(None) == []
    assert (state.record("question", "first_one").attempts, state.record("question", "first_one").missed) == (4, 1)


@given(st.integers(0, 6), st.lists(st.booleans(), max_size=12), st.integers(0, 2**31))
def test_every_question_is_correct_in_the_end(n: int, answers: list[bool], seed: int) -> None:
    """Once the wrong answers stop, the quiz ends, and every question has been answered correctly once."""
    quiz, state = QuizRun([make(f"q{number}") for number in range(n)], seed), ProgressState()
    planned = iter(answers)
    for _ in range(n + len(answers)):
        if (question := quiz.question) is None:
            break
        again, right = quiz.repeated, next(planned, True)
        assert quiz.answer(letter(quiz, correct=right)).correct is right
        state.record("question", question.id).record_answer(correct=right, repeated=again)
    assert quiz.question is None
    assert all(record.done_at for record in state.records.values())
    assert len(state.records) == n
    assert {key for key, record in state.records.items() if record.due} == {f"question/{name}" for name in quiz.missed}
