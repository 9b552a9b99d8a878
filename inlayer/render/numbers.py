"""Human-readable numbers: durations, counts, short decimals.

Shared by reports and progress output. Tested in tests/render/test_numbers.py.
"""

from __future__ import annotations

import math


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units.

    >>> format_duration(7.25), format_duration(65), format_duration(3725)
    ('7.2 s', '1 min 5 s', '1 h 2 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"


def pluralize(amount: int, noun: str) -> str:
    """Return a number and its noun, in the plural unless the number is 1."""
    return f"{amount:,} {noun}" if amount == 1 else f"{amount:,} {noun}s"


def format_number(value: float | None) -> str:
    """Return a number with about three digits; a dash for None, NaN, and infinity."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.2f}" if 0.01 <= abs(value) < 100 or value == 0 else f"{value:.3g}"
