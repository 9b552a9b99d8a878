"""Theory exercises: what is asked, drawn from a seed, and what an answer is worth.

exercises.py of a lesson -> [asking] -> doors
- a number (or a shape) and a choice are judged; free text is not: the learner compares it with a model answer, point by
  point, and says himself whether it holds
- the same seed asks the same; another one asks with other numbers, so that an answer cannot be copied
- numbers are read as people write them: 1,174,405,120, 1 000, 1'000, 2.35e9, 2**30, 163840 * 7168, 1/2, "2.35 GB" where
  the unit is bytes; shapes as (2, 10, 4096), [2,10,4096], 2,10,4096, 2 x 10 x 4096. The question says which is meant
- nothing that is typed is run, and all of it is computed exactly
Checked in tests/learn/test_questions.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import ModuleType
from typing import ClassVar, TypeAlias

from inlayer.errors import InputError
from inlayer.paths import quoted

__all__ = [
    "AnswerResult",
    "Asked",
    "ChoiceQuestion",
    "Exercise",
    "FreeTextQuestion",
    "NumberQuestion",
    "Option",
    "exercises_of",
]

Value: TypeAlias = "int | float | tuple[int, ...]"
SIZES = {
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40
}  # fmt: skip
MAX_CHARACTERS = 100  # of an answer
MOST = 10**300  # of a number
ROUNDING = 1e-9
# Fullwidth characters are the plain ones, blanks that keep numbers together are blanks, a minus is a hyphen, a times an
# x; an underscore is nothing.
TYPED = str.maketrans({chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {
    "_": "", "\u2009": " ", "\u202f": " ", "\u00a0": " ", "\u3000": " ", "\u2212": "-", "\u2019": "'",
    "\u00d7": "x", "\u00b7": "*", "\u22c5": "*", "\u00f7": "/", "\u2044": "/",
})  # fmt: skip
SHAPE = re.compile(r"""(?a:  # digits are 0 to 9
    [(\[]\s*(\d+\s*(,\s*\d+\s*)*,?)?\s*[)\]]  # (2, 3), [2, 3], (5,), ()
    | \d+(\s*,\s*\d+)+                          # 2, 3
    | [(\[]?\s*\d+(\s*x\s*\d+)+\s*[)\]]?        # 2 x 3
)""", re.VERBOSE)  # fmt: skip
# What may stand between thousands, and its name.
MARKS = {",": "commas", " ": "blanks", "'": "apostrophes"}


@dataclass(frozen=True, kw_only=True)
class AnswerResult:
    """What an answer is worth, and why."""

    correct: bool
    message: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One answer to choose, whether it is right, and the reason."""

    text: str
    correct: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class NumberQuestion:
    """A question whose answer is a number or a shape.

    tolerance  how far off an answer may be, as a share of the right one
    common_mistakes  well-known wrong answers, and why people give them
    """

    text: str
    answer: Value
    explanation: str
    unit: str = ""
    tolerance: float = 0.0
    common_mistakes: dict[Value, str] = field(default_factory=dict)
    kind: ClassVar[str] = "number"

    @property
    def form(self) -> str:
        """What an answer looks like, in words."""
        kind = "a shape, such as (2, 3, 4)" if isinstance(self.answer, tuple) else "a number"
        return f"{kind}, in {self.unit}" if self.unit else kind

    @property
    def written(self) -> str:
        """The answer as it is shown: 1,000 bytes, (2, 3)."""
        value = str(self.answer) if isinstance(self.answer, tuple) else f"{self.answer:,}"
        return f"{value} {self.unit}".strip()

    def judge(self, said: str) -> AnswerResult:
        value = read_shape(said) if isinstance(self.answer, tuple) else read_number(said, self.unit)
        if close(value, self.answer, self.tolerance):
            return AnswerResult(correct=True, message=self.explanation)
        for wrong, why in self.common_mistakes.items():
            if close(value, wrong, self.tolerance):
                return AnswerResult(correct=False, message=why)
        return AnswerResult(correct=False, message="That is not it. Work it out again, step by step.")


@dataclass(frozen=True, kw_only=True)
class ChoiceQuestion:
    """A question with options, of which one is right."""

    text: str
    options: tuple[Option, ...]
    explanation: str = ""
    kind: ClassVar[str] = "choice"

    def shuffled(self, word: str) -> ChoiceQuestion:
        """The same with its options in an order that the word draws."""
        options = list(self.options)
        random.Random(word).shuffle(options)
        return replace(self, options=tuple(options))

    def judge(self, said: str) -> AnswerResult:
        """The answer is a letter: a, b, c, ..."""
        chosen = self.options[read_letter(said, len(self.options))]
        message = f"{chosen.reason} {self.explanation}".strip() if chosen.correct else chosen.reason
        return AnswerResult(correct=chosen.correct, message=message)


@dataclass(frozen=True, kw_only=True)
class FreeTextQuestion:
    """A question that no program can judge: its model answer, and what a good one says."""

    text: str
    model_answer: str
    points: tuple[str, ...]
    kind: ClassVar[str] = "free"


Asked: TypeAlias = "NumberQuestion | ChoiceQuestion | FreeTextQuestion"


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """An exercise of a lesson; `ask` draws it."""

    id: str
    lesson: str
    title: str
    draw: Callable[[random.Random], Asked]

    def ask(self, seed: int) -> Asked:
        asked = self.draw(random.Random(f"{self.id} {seed}"))
        return asked.shuffled(f"order {self.id} {seed}") if isinstance(asked, ChoiceQuestion) else asked


def exercises_of(module: ModuleType, lesson: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson's module."""
    return tuple(
        Exercise(
            id=f"{lesson}/{draw.__name__}",
            lesson=lesson,
            title=(draw.__doc__ or "").strip().splitlines()[0],
            draw=draw,
        )
        for draw in module.EXERCISES
    )


def read_letter(said: str, options: int) -> int:
    """Which of the options a letter means."""
    letter = said.strip().strip("().").lower()
    letters = [chr(ord("a") + number) for number in range(options)]
    if letter not in letters:
        raise InputError(f"{quoted(said)} is none of the options {', '.join(letters)}")
    return letters.index(letter)


def read_shape(said: str) -> tuple[int, ...]:
    """A shape, as people write it: here a comma stands between sizes."""
    text = plain(said)
    if inner := re.fullmatch(r"torch\.size\((.*)\)", text):
        text = inner[1]
    if not SHAPE.fullmatch(text):
        raise InputError(f"{quoted(said)} is not what is asked for: a shape, such as (2, 3, 4)")
    spaced = re.search(r",\s", text)
    if re.search(r"(?<!\d)0\d", text) or (spaced and re.search(r"\d,\d{3}(?!\d)", text)):  # (1,000), (2, 10, 4,096)
        raise InputError(f"{quoted(said)} can be read in two ways: write 1000, not 1,000, for a size of a shape")
    return tuple(int(size) for size in re.findall(r"\d+", text))


def read_number(said: str, unit: str = "") -> int | float:
    """A number, or a product or quotient of numbers, as people write them: here a comma stands between thousands."""
    text = plain(said)
    if SHAPE.fullmatch(text) and re.search(r"[(\[]|,\s", text):
        raise InputError(f"{quoted(said)} is not what is asked for: a number")
    text = re.sub(r"(?<=[\d\s])x(?=[\d\s])", "*", text.replace("**", "^"))
    found = re.fullmatch(r"(.*[\d.])\s*([a-z%]*)", text)
    if found is None:
        raise InputError(f"{quoted(said)} is neither a number nor a shape such as (2, 3, 4)")
    first, *others = re.split(r"([*/])", found[1])
    value = read_factor(first, said)
    for sign, other in zip(others[::2], others[1::2], strict=True):
        factor = read_factor(other, said)
        if sign == "/" and not factor:
            raise InputError(f"{quoted(said)} divides by 0")
        value = value * factor if sign == "*" else value / factor
    value *= _times(said, found[2], unit)
    if abs(value) > MOST:
        raise InputError(f"{quoted(said)} is too large a number")
    if value and abs(value) * MOST < 1:
        raise InputError(f"{quoted(said)} is too small a number")
    return int(value) if value.denominator == 1 else float(value)


def read_factor(text: str, said: str) -> Fraction:
    """One number of a product, exactly."""
    digits = text.strip()
    if power := re.fullmatch(r"(?a)(\d{1,6})\s*\^\s*(\d{1,3})", digits):
        return Fraction(int(power[1]) ** int(power[2]))
    if not re.fullmatch(r"(?a)[-+]?[\d.,' ]*\d\.?(e[-+]?\d{1,3})?", digits):
        raise InputError(f"{quoted(said)} is neither a number nor a shape such as (2, 3, 4)")
    for mark, name in MARKS.items():
        if mark in digits and not re.fullmatch(rf"[-+]?\d{{1,3}}({mark}\d{{3}})+(\.\d*)?(e[-+]?\d+)?", digits):
            dot = "; a decimal point is a dot" if mark == "," else ""
            raise InputError(f"{quoted(said)} has {name} that do not stand between thousands{dot}")
        digits = digits.replace(mark, "")
    try:
        return Fraction(digits)
    except ValueError:
        raise InputError(f"{quoted(said)} is no number") from None


def plain(said: str) -> str:
    """What was typed, in plain small letters, digits and signs."""
    if len(said) > MAX_CHARACTERS:
        raise InputError(f"an answer of {len(said):,} characters is too long")
    return said.strip().translate(TYPED).strip().lower()


def _times(said: str, suffix: str, unit: str) -> int:
    """What a unit behind a number multiplies it by; InputError where it is not the unit that is asked for."""
    if suffix in SIZES and unit == "bytes":
        return SIZES[suffix]
    known = {"", unit.lower(), unit.lower().removesuffix("s")} | ({"b"} if unit == "bytes" else set())
    if suffix not in known:
        raise InputError(f"{quoted(said)}: the answer is in {unit}" if unit else f"{quoted(said)} has no unit here")
    return 1


def close(value: Value, answer: Value, tolerance: float) -> bool:
    """Is a value the answer, or within so much of it? A fraction is the same up to how it is rounded in a computer."""
    if isinstance(value, tuple) or isinstance(answer, tuple):
        return value == answer
    if isinstance(value, float) or isinstance(answer, float):
        tolerance = max(tolerance, ROUNDING)
    return value == answer or abs(value - answer) <= tolerance * abs(answer)
