"""Theory exercises: what is asked, drawn from a seed, and what an answer is worth.

exercises.py of a lesson -> [asking] -> doors
- a number (or a shape) and a choice are judged; free text is not: the learner compares it with a model answer, point by
  point, and says himself whether it holds
- the same seed asks the same; another one asks with other numbers, so that an answer cannot be copied
- numbers are read as people write them: 1,174,405,120, 2.35e9, 1_000, (2, 10, 4096), "2.35 GB" where the unit is bytes
Checked in tests/learn/test_asking.py.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import TypeAlias

from inlayer.errors import InputError
from inlayer.paths import quoted

__all__ = ["Asked", "Choice", "Exercise", "Free", "Judged", "Number", "Option", "exercises_of"]

Value: TypeAlias = "int | float | tuple[int, ...]"
SIZES = {"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What an answer is worth, and why."""

    right: bool
    message: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One answer to choose, whether it is right, and the reason."""

    text: str
    right: bool
    why: str


@dataclass(frozen=True, kw_only=True)
class Number:
    """A question whose answer is a number or a shape.

    tolerance  how far off an answer may be, as a share of the right one
    near       well-known wrong answers, and why people give them
    """

    text: str
    answer: Value
    explain: str
    unit: str = ""
    tolerance: float = 0.0
    near: dict[Value, str] = field(default_factory=dict)

    def judge(self, said: str) -> Judged:
        value = read_value(said, self.unit)
        if isinstance(value, tuple) != isinstance(self.answer, tuple):
            wanted = "a shape, such as (2, 3, 4)" if isinstance(self.answer, tuple) else "a number"
            raise InputError(f"{quoted(said)} is not what is asked for: {wanted}")
        if close(value, self.answer, self.tolerance):
            return Judged(right=True, message=self.explain)
        for wrong, why in self.near.items():
            if close(value, wrong, self.tolerance):
                return Judged(right=False, message=why)
        return Judged(right=False, message="That is not it. Work it out again, step by step.")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A question with options, of which one is right."""

    text: str
    options: tuple[Option, ...]
    explain: str = ""

    def judge(self, said: str) -> Judged:
        """The answer is a letter: a, b, c, ..."""
        chosen = self.options[read_letter(said, len(self.options))]
        message = f"{chosen.why} {self.explain}".strip() if chosen.right else chosen.why
        return Judged(right=chosen.right, message=message)


@dataclass(frozen=True, kw_only=True)
class Free:
    """A question that no program can judge: its model answer, and what a good one says."""

    text: str
    model_answer: str
    points: tuple[str, ...]


Asked: TypeAlias = "Number | Choice | Free"


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """An exercise of a lesson; `ask` draws it."""

    id: str
    lesson: str
    title: str
    draw: Callable[[random.Random], Asked]
    seed: str = ""

    def ask(self, seed: int) -> Asked:
        asked = self.draw(random.Random(f"{self.id} {seed}"))
        if not isinstance(asked, Choice):
            return asked
        options = list(asked.options)
        random.Random(f"order {self.id} {seed}").shuffle(options)
        return Choice(text=asked.text, options=tuple(options), explain=asked.explain)


def exercises_of(module: ModuleType, lesson: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson's module."""
    seeds: dict[str, str] = getattr(module, "SEEDS", {})
    return tuple(
        Exercise(
            id=f"{lesson}/{draw.__name__}",
            lesson=lesson,
            title=(draw.__doc__ or "").strip().splitlines()[0],
            draw=draw,
            seed=seeds.get(draw.__name__, ""),
        )
        for draw in module.EXERCISES
    )


def read_letter(said: str, options: int) -> int:
    """Which of the options a letter means."""
    letter = said.strip().strip("()").lower()
    letters = [chr(ord("a") + number) for number in range(options)]
    if letter not in letters:
        raise InputError(f"{quoted(said)} is none of the options {', '.join(letters)}")
    return letters.index(letter)


def read_value(said: str, unit: str = "") -> Value:
    """A number or a shape, as people write them."""
    text = said.strip().lower().replace("_", "").replace("\u2009", "").replace("\u00a0", " ")
    if re.fullmatch(r"[(\[]\s*\d+\s*(,\s*\d+\s*)*,?\s*[)\]]", text):
        return tuple(int(part) for part in re.findall(r"\d+", text))
    found = re.fullmatch(r"([-+]?[\d.,]*\d\.?(?:e[-+]?\d+)?)\s*([a-z%]*)", text)
    if found is None:
        raise InputError(f"{quoted(said)} is neither a number nor a shape such as (2, 3, 4)")
    digits, suffix = found.groups()
    if "," in digits and not re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?(e[-+]?\d+)?", digits):
        raise InputError(f"{quoted(said)} has commas that do not stand between thousands; a decimal point is a dot")
    try:
        value = float(digits.replace(",", ""))
    except ValueError:
        raise InputError(f"{quoted(said)} is no number") from None
    if suffix in SIZES and unit == "bytes":
        value *= SIZES[suffix]
    elif suffix and suffix not in {unit.lower(), unit.lower().rstrip("s"), "b" if unit == "bytes" else unit.lower()}:
        raise InputError(f"{quoted(said)}: the answer is in {unit}" if unit else f"{quoted(said)} has no unit here")
    if not math.isfinite(value):
        raise InputError(f"{quoted(said)} is no finite number")
    return int(value) if value == int(value) else value


def close(value: Value, answer: Value, tolerance: float) -> bool:
    """Is a value the answer, or within so much of it?"""
    if isinstance(value, tuple) or isinstance(answer, tuple):
        return value == answer
    return abs(value - answer) <= tolerance * abs(answer)
