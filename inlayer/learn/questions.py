"""Theory questions: generated from a seed, and graded.

exercises.py of a lesson -> [questions] -> service
- numbers, shapes, and choices are graded. Free text is not; learners compare it with a sample answer, point by point
- the same seed gives the same question; a different seed changes the numbers, so answers cannot be copied
- numbers are parsed as people write them: 1,174,405,120, 1 000, 1'000, 2.35e9, 2**30, 163840 * 7168, 1/2, and "2.35 GB"
  if the unit is bytes; shapes as (2, 10, 4096), [2,10,4096], 2,10,4096, or 2 x 10 x 4096
- answers are never evaluated as code, and arithmetic is exact
Tested in tests/learn/test_questions.py.
"""

from __future__ import annotations

import random
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias, TypeVar

from inlayer.errors import InputError
from inlayer.files import quote

Value: TypeAlias = "int | float | tuple[int, ...]"
C = TypeVar("C", bound="ChoiceQuestion")
SIZES = {
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40
}  # fmt: skip
MAX_SEED = 2**31 - 1
MAX_CHARACTERS = 100  # maximum length of an answer
MAX_NUMBER = 10**300
ROUNDING = 1e-9
# Normalizes fullwidth characters, special spaces, and math symbols; drops underscores.
NORMALIZED = str.maketrans({chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {
    "_": "", "\u2009": " ", "\u202f": " ", "\u00a0": " ", "\u3000": " ", "\u2212": "-", "\u2019": "'",
    "\u00d7": "x", "\u00b7": "*", "\u22c5": "*", "\u00f7": "/", "\u2044": "/",
})  # fmt: skip
SHAPE = re.compile(r"""(?a:  # digits are 0 to 9
    [(\[]\s*(\d+\s*(,\s*\d+\s*)*,?)?\s*[)\]]  # (2, 3), [2, 3], (5,), ()
    | \d+(\s*,\s*\d+)+                          # 2, 3
    | [(\[]?\s*\d+(\s*x\s*\d+)+\s*[)\]]?        # 2 x 3
)""", re.VERBOSE)  # fmt: skip
FACTORS = {  # factors by which wrong answers are often off, each with a hint
    2: "is something counted twice, or not at all?", 4: "how many bytes does one value take?", 8: "bits or bytes?",
    10: "check the zeros.", 100: "check the zeros.",
} | dict.fromkeys((10**3, 2**10, 10**6, 2**20, 10**9, 2**30), "check the unit.")  # fmt: skip
THOUSANDS_SEPARATORS = {",": "commas", " ": "spaces", "'": "apostrophes"}


@dataclass(frozen=True, kw_only=True)
class AnswerResult:
    """Whether an answer is correct, and why. For a choice, `option` is the index of the chosen option."""

    correct: bool
    message: str
    option: int | None = None


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a choice, and the reason it is right or wrong."""

    text: str
    correct: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class TheoryQuestion:
    """A question of an exercise or quiz. `ask` sets its id, lesson, title, and the seed of its numbers."""

    text: str
    id: str = ""
    lesson: str = ""
    title: str = ""  # title of the exercise
    seed: int = 0
    kind: ClassVar[str]
    grading: ClassVar[str] = "graded"

    def to_dict(self) -> dict[str, Any]:
        """Return the question as plain JSON values, without its answer."""
        own = {name: getattr(self, name) for name in ("id", "lesson", "title", "seed", "kind", "text")}
        return {**own, "graded": self.grading == "graded", "options": {}, "unit": "", "is_shape": False}


@dataclass(frozen=True, kw_only=True)
class NumberQuestion(TheoryQuestion):
    """A question whose answer is a number or a shape.

    `tolerance` is relative; `common_mistakes` maps well-known wrong answers to explanations.
    """

    answer: Value
    explanation: str
    unit: str = ""
    tolerance: float = 0.0
    common_mistakes: dict[Value, str] = field(default_factory=dict)
    kind = "number"

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"unit": self.unit, "is_shape": isinstance(self.answer, tuple)}

    @property
    def form(self) -> str:
        """The expected form of an answer, in words."""
        kind = "a shape, such as (2, 3, 4)" if isinstance(self.answer, tuple) else "a number"
        return f"{kind}, in {self.unit}" if self.unit else kind

    @property
    def formatted_answer(self) -> str:
        """The answer as text: 1,000 bytes, (2, 3)."""
        value = str(self.answer) if isinstance(self.answer, tuple) else f"{self.answer:,}"
        return f"{value} {self.unit}".strip()

    def grade(self, answer: str) -> AnswerResult:
        value = parse_shape(answer) if isinstance(self.answer, tuple) else parse_number(answer, self.unit)
        if is_close(value, self.answer, self.tolerance):
            return AnswerResult(correct=True, message=self.explanation)
        for wrong, explanation in self.common_mistakes.items():
            if is_close(value, wrong, self.tolerance):
                return AnswerResult(correct=False, message=explanation)
        diagnosis = diagnose(value, self.answer)
        return AnswerResult(correct=False, message=f"{diagnosis} Work through it again, step by step.")


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion(TheoryQuestion):
    """A question with options; exactly one is correct."""

    options: tuple[Option, ...]
    explanation: str = ""
    kind = "choice"

    def to_dict(self) -> dict[str, Any]:
        letters = {chr(ord("a") + index): option.text for index, option in enumerate(self.options)}
        return super().to_dict() | {"options": letters}

    @property
    def formatted_answer(self) -> str:
        return next(option.text for option in self.options if option.correct)

    def grade(self, answer: str) -> AnswerResult:
        """Grade a letter: a, b, c, ..."""
        index = parse_letter(answer, len(self.options))
        chosen = self.options[index]
        message = f"{chosen.reason} {self.explanation}".strip() if chosen.correct else chosen.reason
        return AnswerResult(correct=chosen.correct, message=message, option=index)


@dataclass(frozen=True, kw_only=True)
class FreeTextQuestion(TheoryQuestion):
    """A question answered in words: a sample answer, and the points a good answer makes."""

    sample_answer: str
    points: tuple[str, ...]
    kind = "free"
    grading = "self-checked"


GradedQuestion: TypeAlias = NumberQuestion | ChoiceQuestion


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """An exercise of a lesson, such as "forward/shape"; `ask` generates its question from a seed."""

    id: str
    lesson: str
    title: str
    draw: Callable[[random.Random], TheoryQuestion]

    def ask(self, seed: int) -> TheoryQuestion:
        question = self.draw(random.Random(f"{self.id} {seed}"))
        if isinstance(question, ChoiceQuestion):
            question = shuffled(question, f"order {self.id} {seed}")
        return replace(question, id=self.id, lesson=self.lesson, title=self.title, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Question(ChoiceQuestion):
    """A quiz question; `ask` shuffles its options by a seed."""

    def ask(self, seed: int) -> Question:
        return replace(shuffled(self, f"{self.id} {seed}"), seed=seed)


def random_seed() -> int:
    """Draw a seed for the numbers in a question, or for the values that a task's checks draw."""
    return secrets.randbelow(MAX_SEED + 1)


def shuffled(question: C, seed: str) -> C:
    options = list(question.options)
    random.Random(seed).shuffle(options)
    return replace(question, options=tuple(options))


def parse_letter(answer: str, options: int) -> int:
    """Return the index of the option with this letter."""
    letter = answer.strip().strip("().").lower()
    letters = [chr(ord("a") + index) for index in range(options)]
    if letter not in letters:
        raise InputError(f"{quote(answer)} is not one of the options {', '.join(letters)}")
    return letters.index(letter)


def parse_shape(answer: str) -> tuple[int, ...]:
    """Parse a shape; a comma separates sizes."""
    text = normalize(answer)
    if inner := re.fullmatch(r"torch\.size\((.*)\)", text):
        text = inner[1]
    if not SHAPE.fullmatch(text):
        raise InputError(f"{quote(answer)} is not a shape such as (2, 3, 4)")
    spaced = re.search(r",\s", text)
    if re.search(r"(?<!\d)0\d", text) or (spaced and re.search(r"\d,\d{3}(?!\d)", text)):  # (1,000), (2, 10, 4,096)
        raise InputError(f"{quote(answer)} is ambiguous: write 1000, not 1,000, in a shape")
    return tuple(int(size) for size in re.findall(r"\d+", text))


def parse_number(answer: str, unit: str = "") -> int | float:
    """Parse a number, product, or quotient; a comma separates thousands."""
    text = normalize(answer)
    if SHAPE.fullmatch(text) and re.search(r"[(\[]|,\s", text):
        raise InputError(f"{quote(answer)} is a shape; the answer is a number")
    text = re.sub(r"(?<=[\d\s])x(?=[\d\s])", "*", text.replace("**", "^"))
    match = re.fullmatch(r"(.*[\d.])\s*([a-z%]*)", text)
    if match is None:
        raise InputError(f"{quote(answer)} is not a number")
    first, *others = re.split(r"([*/])", match[1])
    value = parse_factor(first, answer)
    for sign, text in zip(others[::2], others[1::2], strict=True):
        factor = parse_factor(text, answer)
        if sign == "/" and not factor:
            raise InputError(f"{quote(answer)} divides by 0")
        value = value * factor if sign == "*" else value / factor
    value *= _unit_factor(answer, match[2], unit)
    if value and not 1 <= abs(value) * MAX_NUMBER <= MAX_NUMBER**2:
        raise InputError(f"{quote(answer)} is too {'large' if abs(value) > 1 else 'small'}")
    return int(value) if value.denominator == 1 else float(value)


def parse_factor(text: str, answer: str) -> Fraction:
    """Parse one number of a product exactly."""
    digits = text.strip()
    if power := re.fullmatch(r"(?a)(\d{1,6})\s*\^\s*(\d{1,3})", digits):
        return Fraction(int(power[1]) ** int(power[2]))
    if not re.fullmatch(r"(?a)[-+]?[\d.,' ]*\d\.?(e[-+]?\d{1,3})?", digits):
        raise InputError(f"{quote(answer)} is not a number")
    for mark, name in THOUSANDS_SEPARATORS.items():
        if mark in digits and not re.fullmatch(rf"[-+]?\d{{1,3}}({mark}\d{{3}})+(\.\d*)?(e[-+]?\d+)?", digits):
            dot = "; write a decimal point as a dot" if mark == "," else ""
            raise InputError(f"{quote(answer)} has misplaced {name}{dot}")
        digits = digits.replace(mark, "")
    try:
        return Fraction(digits)
    except ValueError:
        raise InputError(f"{quote(answer)} is not a number") from None


def diagnose(value: Value, answer: Value) -> str:
    """Describe the mistake in an answer, without revealing the right answer."""
    if isinstance(value, tuple) and isinstance(answer, tuple):
        if len(value) != len(answer):
            return f"Your shape has the wrong number of axes: {len(value)} instead of {len(answer)}."
        if sorted(value) == sorted(answer):
            return "Your shape has the right sizes in the wrong order."
        right = sum(size == expected for size, expected in zip(value, answer, strict=True))
        return f"Correct sizes in your shape: {right} of {len(answer)}."
    assert not isinstance(value, tuple)
    assert not isinstance(answer, tuple)
    direction = "large" if value > answer else "small"
    start = f"Your answer, {f'{value:,}' if abs(value) < 1e15 else f'{value:.6g}'}, "
    smaller, larger = sorted((abs(value), abs(answer)))
    for factor, hint in FACTORS.items():
        if value * answer > 0 and is_close(larger, smaller * factor, ROUNDING):
            return f"{start}is {factor:,} times too {direction}: {hint}"
    if value and value == -answer:
        return f"{start}has the wrong sign."
    close = ", but close" if larger - smaller <= smaller / 20 and value * answer > 0 else ""
    return f"{start}is too {direction}{close}."


def normalize(answer: str) -> str:
    """Normalize an answer to plain lowercase characters."""
    if len(answer) > MAX_CHARACTERS:
        raise InputError(f"an answer may have at most {MAX_CHARACTERS} characters; this one has {len(answer):,}")
    return answer.strip().translate(NORMALIZED).strip().lower()


def _unit_factor(answer: str, suffix: str, unit: str) -> int:
    """Return the factor of the unit after a number. Raises InputError for a unit the question does not use."""
    if suffix in SIZES and unit == "bytes":
        return SIZES[suffix]
    known = {"", unit.lower(), unit.lower().removesuffix("s")} | ({"b"} if unit == "bytes" else set())
    if suffix not in known:
        raise InputError(
            f"{quote(answer)}: the answer is in {unit}" if unit else f"{quote(answer)}: the answer has no unit"
        )
    return 1


def is_close(value: Value, answer: Value, tolerance: float) -> bool:
    """Return whether a value matches the answer within a relative tolerance, at least rounding error for floats."""
    if isinstance(value, tuple) or isinstance(answer, tuple):
        return value == answer
    if isinstance(value, float) or isinstance(answer, float):
        tolerance = max(tolerance, ROUNDING)
    return value == answer or abs(value - answer) <= tolerance * abs(answer)
