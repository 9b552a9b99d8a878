"""Numbers as people read them."""

from __future__ import annotations

import math

from inlayer.render.numbers import format_duration, format_number, pluralize


def test_durations() -> None:
    seconds = (0.0, 7.25, 59.94, 60.0, 65.4, 3599.4, 3600.0, 3725.0, 360_000.0)
    texts = (
        "0.0 s",
        "7.2 s",
        "59.9 s",
        "1 min 0 s",
        "1 min 5 s",
        "59 min 59 s",
        "1 h 0 min",
        "1 h 2 min",
        "100 h 0 min",
    )
    assert tuple(map(format_duration, seconds)) == texts


def test_counts() -> None:
    assert [pluralize(amount, "step") for amount in (0, 1, 1234)] == ["0 steps", "1 step", "1,234 steps"]


def test_short_numbers() -> None:
    values = (0.0, 0.5, 99.994, 123.4, 1e-5, -0.02, None, math.nan, math.inf)
    assert [format_number(value) for value in values] == [
        "0.00",
        "0.50",
        "99.99",
        "123",
        "1e-05",
        "-0.02",
        "-",
        "-",
        "-",
    ]
