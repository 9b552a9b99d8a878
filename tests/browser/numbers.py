"""The numbers that a page must show: every number of a trace, by its place."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from inlayer.trace import Trace

Place = tuple[object, ...]
MINUS = "\u2212"


def key(cell: dict[str, Any]) -> Place:
    """The place of a number, from its data attributes."""
    return (cell["field"], *(int(cell[name]) if name in cell else None for name in ("s", "b", "t", "id", "d")))


def value(cell: dict[str, Any]) -> float:
    return float(cell["value"])


def same(ours: float, theirs: float) -> bool:
    return ours == theirs or (math.isnan(ours) and math.isnan(theirs))


def is_rounding(written: str, exact: float) -> bool:
    """Tell whether a text is the rounded exact number."""
    text = written.replace(MINUS, "-").replace(",", "").strip()
    if not math.isfinite(exact):
        return text == {True: "NaN", False: "+\u221e" if exact > 0 else "-\u221e"}[math.isnan(exact)]
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2]) - int(exponent or 0)
    return abs(float(text) - exact) <= 0.5000001 * 10**-decimals


def expected(trace: Trace, step: int) -> dict[Place, float]:
    """Every number that a step of this trace must show."""
    return dict(_expected(trace, step))


def _expected(trace: Trace, step: int) -> Iterator[tuple[Place, float]]:
    if step == 8:
        yield from _gradients(trace)
    if step == 6:
        for s, rotary in enumerate(trace.positions.rotary):
            for d, number in enumerate(rotary.frequencies):
                yield ("frequency", s, None, None, None, d), number
    if step == 7:
        for d, number in enumerate(trace.padding.row):
            yield ("padding", None, None, None, None, d), number
    padded = any(text.n_padding for text in trace.texts)
    for b, text in enumerate(trace.texts):
        for t, cell in enumerate(text.tokens):
            if step in (3, 4):
                yield ("id", None, b, t, None, None), float(cell.id or 0)
            if step == 4:
                yield ("offset", None, b, t, None, None), float(cell.offset or 0)
            if step == 7 and padded:
                yield ("mask", None, b, t, None, None), float(cell.mask)
            yield from _vectors(trace, step, b, t)


def _vectors(trace: Trace, step: int, b: int, t: int) -> Iterator[tuple[Place, float]]:
    cell = trace.texts[b].tokens[t]
    shown = {4: ("stored", cell.row), 5: ("row", cell.row), 7: ("hidden", cell.hidden)}
    if step in shown:
        yield from _vector(shown[step][0], None, b, t, shown[step][1])
    if step == 6 and b == 0:
        for s, rotation in enumerate(cell.rotations):
            for name in ("angles", "cos", "sin"):
                yield from _vector(name, s, b, t, getattr(rotation, name))
    before = cell.row
    for s, (stage, made) in enumerate(zip(trace.stages, cell.stages, strict=True)):
        if step == (6 if stage.name == "position" else 7):
            if step == 6:
                yield from _vector("before", s, b, t, before)
            yield from _vector("added", s, b, t, made.added or [])
            yield from _vector("output", s, b, t, made.output)
        before = made.output


def _gradients(trace: Trace) -> Iterator[tuple[Place, float]]:
    back = trace.backward
    if back is None:
        return
    yield ("loss", None, None, None, None, None), back.loss
    for row in back.rows:
        yield ("norm", None, None, None, row.id, None), row.norm
        for name in ("lookup", "head", "total"):
            vector = getattr(row, name)
            if vector is not None and not (name == "total" and row.head is None):
                for d, number in enumerate(vector):
                    yield (name, None, None, None, row.id, d), number
    for d, number in enumerate(back.unmasked_padding_gradient or []):
        yield ("unmasked", None, None, None, None, d), number


def _vector(name: str, s: int | None, b: int, t: int, vector: list[float]) -> Iterator[tuple[Place, float]]:
    for d, number in enumerate(vector):
        yield (name, s, b, t, None, d), number
