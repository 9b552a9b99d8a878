"""Exercises: answers are parsed as people write them, and graded."""

from __future__ import annotations

import random
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inlayer.errors import InputError
from inlayer.learn.course import Lesson
from inlayer.learn.questions import (
    ChoiceQuestion,
    Exercise,
    FreeTextQuestion,
    NumberQuestion,
    Option,
    Value,
    is_close,
    parse_letter,
    parse_number,
    parse_shape,
)


@pytest.mark.parametrize(
    ("written", "unit", "value"),
    [
        ("7", "", 7),
        (" 7 ", "", 7),
        ("-7", "", -7),
        ("+7.0", "", 7),
        ("7.", "", 7),
        (".5", "", 0.5),
        ("1,174,405,120", "bytes", 1_174_405_120),
        ("1_000", "", 1000),
        ("1 000 000", "", 1_000_000),
        ("1\u00a0000", "", 1000),
        ("1\u2009000\u2009000", "", 1_000_000),
        ("1\u202f000", "", 1000),
        ("2.35e9", "bytes", 2_350_000_000),
        ("2.35E+9", "bytes", 2_350_000_000),
        ("2.35 GB", "bytes", 2_350_000_000),
        ("2.35gb", "bytes", 2_350_000_000),
        ("1 GiB", "bytes", 2**30),
        ("12 bytes", "bytes", 12),
        ("12 byte", "bytes", 12),
        ("12 B", "bytes", 12),
        ("2,048 MB", "bytes", 2_048_000_000),
        ("12 rows", "rows", 12),
        ("1 row", "rows", 1),
        ("50%", "%", 50),
        ("50 %", "%", 50),
        ("−3", "", -3),
        ("123456789012345678901", "", 123456789012345678901),
        ("9007199254740993", "", 9007199254740993),
        ("2**30", "", 2**30),
        ("2^30", "", 2**30),
        ("1'174'405'120", "bytes", 1_174_405_120),
        ("1\u2019000", "", 1000),
        ("\uff11\uff12\uff0e\uff15", "", 12.5),
        ("\uff11\uff0c\uff10\uff10\uff10", "", 1000),
        ("163840*7168", "", 163840 * 7168),
        ("163,840 x 7,168 x 2 bytes", "bytes", 163840 * 7168 * 2),
        ("163840\u00d77168", "", 163840 * 7168),
        ("2 * 2**30", "", 2**31),
        ("1/2", "", 0.5),
        ("6/2*3", "", 9),
        ("-1/3", "", -1 / 3),
        ("0.1*3", "", 0.3),
        ("1/3*3", "", 1),
        ("123456789012345678901*10", "", 1234567890123456789010),
        ("1.5*2 GB", "bytes", 3 * 10**9),
    ],
)
def test_numbers_as_people_write_them(written: str, unit: str, value: float) -> None:
    read = parse_number(written, unit)
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("written", "shape"),
    [
        ("(2, 10, 4096)", (2, 10, 4096)),
        ("[2,10,4096]", (2, 10, 4096)),
        ("(2, 10, 4_096)", (2, 10, 4096)),
        ("torch.Size([2, 3])", (2, 3)),
        ("2, 10, 4096", (2, 10, 4096)),
        ("3,41,7168", (3, 41, 7168)),
        ("2,100", (2, 100)),
        (" 3 , 41,7168 ", (3, 41, 7168)),
        ("2 x 10 x 4096", (2, 10, 4096)),
        ("2x10", (2, 10)),
        ("(2 x 10)", (2, 10)),
        ("2 × 10", (2, 10)),
        ("\uff08\uff12\uff0c\uff11\uff10\uff09", (2, 10)),
        ("(0, 3)", (0, 3)),
        ("(5,)", (5,)),
        ("(5)", (5,)),
        ("( )", ()),
    ],
)
def test_shapes_as_people_write_them(written: str, shape: tuple[int, ...]) -> None:
    assert parse_shape(written) == shape


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("(1,000)", "ambiguous"),
        ("2,10,4,096", "ambiguous"),
        ("(2, 10, 4,096)", "ambiguous"),
        ("(2, 10, 7,168)", "ambiguous"),
        ("2 x 010", "ambiguous"),
        ("7", "a shape"),
        ("many", "a shape"),
        ("", "a shape"),
        ("(2, -3)", "a shape"),
        ("(2, 3", "a shape"),
        ("2, 3)", "a shape"),
        ("(٣, 2)", "a shape"),
        ("1, " * 2000, "at most 100 characters"),
    ],
)
def test_invalid_shapes_are_errors(written: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        parse_shape(written)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize(
    ("written", "unit", "why"),
    [
        ("", "", "not a number"),
        ("many", "", "not a number"),
        ("1,5", "", "commas"),
        ("1 5", "", "misplaced spaces"),
        ("٣", "", "not a number"),
        ("1,23,456", "", "commas"),
        ("1.2.3", "", "not a number"),
        ("3 GB", "", "no unit"),
        ("3 rows", "bytes", "in bytes"),
        ("1e999", "", "too large"),
        ("1e-999", "", "too small"),
        ("1e999999999", "", "not a number"),
        ("999999**999", "", "too large"),
        ("1''000", "", "apostrophes"),
        ("1'00", "", "apostrophes"),
        ("1/0", "", "divides by 0"),
        ("2*", "", "not a number"),
        ("*2", "", "not a number"),
        ("2//3", "", "not a number"),
        ("2+3", "", "not a number"),
        ("2\u00b2", "", "not a number"),
        ("\u00bd", "", "not a number"),
        ("__import__('os')", "", "not a number"),
        ("nan", "", "not a number"),
        ("(2, 3)", "", "a number"),
        ("2, 3", "", "a number"),
        ("(2, 3", "", "not a number"),
        ("9" * 5000, "", "at most 100 characters"),
        ("2**9999999999", "", "not a number"),
    ],
)
def test_invalid_numbers_are_errors(written: str, unit: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as refused:
        parse_number(written, unit)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.slow
@given(st.text(max_size=40))
def test_any_text_is_graded_or_rejected(written: str) -> None:
    with suppress(InputError):
        assert isinstance(parse_number(written, "bytes"), (int, float))
    with suppress(InputError):
        assert isinstance(parse_shape(written), tuple)


@given(st.text("0123456789.,'eE-+*/^x ()[]", max_size=40))
def test_any_combination_of_digits_and_signs_is_graded_or_rejected(written: str) -> None:
    for asked in (
        NumberQuestion(text="?", answer=0.5, explanation=""),
        NumberQuestion(text="?", answer=(2, 3), explanation=""),
    ):
        with suppress(InputError):
            asked.grade(written)


@given(st.integers(-(10**25), 10**25))
def test_whole_numbers_are_exact(value: int) -> None:
    written = (str(value), f"{value:,}", f"{value:_}", f"{value:,}".replace(",", "'"), f"{value}*1")
    assert {parse_number(text) for text in written} == {value}


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=5))
def test_shapes_are_exact(sizes: list[int]) -> None:
    written = (str(tuple(sizes)), str(sizes), ",".join(map(str, sizes)), " x ".join(map(str, sizes)))
    assert {parse_shape(text) for text in written} == {tuple(sizes)}


def test_numbers_are_graded() -> None:
    asked = NumberQuestion(
        text="How many?",
        answer=1000,
        explanation="So it is.",
        unit="bytes",
        tolerance=0.01,
        common_mistakes={500: "Half of them."},
    )
    assert (asked.grade("1 kB").correct, asked.grade("1,009").correct, asked.grade("991").correct) == (True, True, True)
    assert asked.grade("1000").message == "So it is."
    assert asked.grade("1011").correct is False
    assert asked.grade("502").message == "Half of them."
    assert asked.grade("7").message.startswith("Your answer, 7, is too ")
    with pytest.raises(InputError, match="a number"):
        asked.grade("(10, 100)")


def test_shapes_are_graded() -> None:
    asked = NumberQuestion(text="?", answer=(2, 3), explanation="B, D", common_mistakes={(3, 2): "Swapped."})
    assert asked.grade("(2, 3)").correct
    assert asked.grade("[3, 2]").message == "Swapped."
    with pytest.raises(InputError, match="a shape"):
        asked.grade("6")
    assert NumberQuestion(text="?", answer=(5,), explanation="").grade("(5,)").correct


def test_common_mistakes_do_not_hide_the_right_answer() -> None:
    asked = NumberQuestion(text="?", answer=100, explanation="yes", tolerance=0.1, common_mistakes={105: "no"})
    assert asked.grade("105").correct


@pytest.mark.parametrize(
    ("value", "answer", "tolerance", "fits"),
    [(0, 0, 0.0, True),
     (0.3, 0.1 + 0.2, 0.0, True), (1, 2, 0.0, False), (1e300, 1e300, 0.0, True), (-1, 1, 0.5, False)],
)  # fmt: skip
def test_close(value: float, answer: float, tolerance: float, fits: bool) -> None:
    assert is_close(value, answer, tolerance) is fits


def test_choices_are_graded_by_letter() -> None:
    options = (Option(text="one", correct=False, reason="no"), Option(text="two", correct=True, reason="yes"))
    asked = ChoiceQuestion(text="?", options=options, explanation="It is two.")
    assert asked.grade("b").message == "yes It is two."
    assert asked.grade(" A ").message == "no"
    assert [parse_letter(written, 3) for written in ("a", "B", "(c)", "c)", "c.")] == [0, 1, 2, 2, 2]
    for written in ("", "d", "aa", "1"):
        with pytest.raises(InputError, match="not one of the options"):
            parse_letter(written, 3)


def sum_of(draw: random.Random) -> NumberQuestion:
    """a sum

    of two numbers
    """
    addend = draw.randint(0, 10**9)
    return NumberQuestion(text=f"{addend} + 1?", answer=addend + 1, explanation="")


def four(draw: random.Random) -> ChoiceQuestion:
    """four"""
    del draw
    made = tuple(Option(text=str(number), correct=number == 0, reason="") for number in range(4))
    return ChoiceQuestion(text="?", options=made)


def test_exercises_depend_on_their_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("inlayer.learn.content.toys.exercises")
    module.__dict__.update(EXERCISES=(sum_of, four))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    one, two = Lesson(id="toys", number=1, folder=Path()).exercises
    assert (one.id, one.lesson, one.title) == ("toys/sum_of", "toys", "a sum")
    assert two.id == "toys/four"
    assert one.ask(1) == one.ask(1) != one.ask(2)
    orders = {tuple(option.text for option in two.ask(seed).options) for seed in range(40)}  # type: ignore[union-attr]
    assert len(orders) > 10
    assert {frozenset(order) for order in orders} == {frozenset("0123")}
    other = Exercise(id="toys/other", lesson="toys", title="", draw=sum_of)
    assert other.ask(1) != one.ask(1)  # the id is part of the seed


def test_free_text_is_not_graded() -> None:
    assert not hasattr(FreeTextQuestion(text="Why?", sample_answer="So.", points=("so",)), "judge")


@pytest.mark.parametrize(
    ("answer", "written", "shown"),
    [
        ((2, 10, 4096), "(2, 10)", "Your shape has the wrong number of axes: 2 instead of 3."),
        ((2, 10, 4096), "(10, 2, 4096)", "right sizes in the wrong order"),
        ((2, 10, 4096), "(2, 9, 4096)", "Correct sizes in your shape: 2 of 3."),
        (525_336_576, "4,202,692,608", "8 times too large: bits or bytes?"),
        (2_000, "2", "1,000 times too small: check the unit."),
        (2_000, "1999", "too small, but close"),
        (32.0, "-32", "has the wrong sign"),
        (32.0, "0", "is too small."),
        (0, "5", "is too large."),
    ],
)
def test_a_wrong_answer_gets_a_diagnosis_but_not_the_answer(answer: Value, written: str, shown: str) -> None:
    result = NumberQuestion(text="?", answer=answer, explanation="").grade(written)
    assert not result.correct
    assert shown in result.message
    assert str(answer) not in result.message
