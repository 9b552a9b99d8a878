"""What a check compares, and how it says that it does not hold: the rule, the place, never the number that was wanted.

- shapes are drawn, expected against yours, axis by axis
- a wrong value that a known misconception explains is told by that, with the misconception's own name
Checked in tests/learn/test_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from inlayer.learn.session import CheckFailed, describe_value

__all__ = ["check_dtype", "check_equal", "check_shape", "check_values"]


def check_shape(
    got: Any,
    want: tuple[int, ...],
    letters: str,
    *,
    mistakes: Mapping[str, tuple[int, ...] | tuple[tuple[int, ...], str]] | None = None,
    rule: str = "shape",
) -> None:
    """Check a shape. `letters` names the axes ("B T D"); `mistakes` maps a rule to a wrong shape and its message."""
    if not isinstance(got, Tensor):
        raise CheckFailed("not-a-tensor", f"the result must be a tensor; it is {describe_value(got)}")
    found = tuple(got.shape)
    if found == want:
        return
    drawing = draw_shapes(want, found, letters)
    for name, said in (mistakes or {}).items():
        shape, words = said if said and isinstance(said[0], tuple) else (said, name.replace("-", " "))
        if found == shape:
            raise CheckFailed(name, f"{words}\n{drawing}")
    raise CheckFailed(rule, f"the result has the wrong shape\n{drawing}")


def draw_shapes(want: tuple[int, ...], found: tuple[int, ...], letters: str) -> str:
    """Two rows under the names of the axes: what was expected, what came."""
    names = letters.split()
    width = max(len(str(part)) for part in (*want, *found, *names, 0))
    columns = max(len(want), len(found), len(names))

    def row(label: str, parts: list[str]) -> str:
        return f"{label:>9}  " + "  ".join(f"{part:>{width}}" for part in parts)

    def pad(parts: list[str]) -> list[str]:
        return parts + ["-"] * (columns - len(parts))

    marks = ["" if want[axis : axis + 1] == found[axis : axis + 1] else "^" for axis in range(columns)]
    lines = [
        row("", [*names, *[""] * (columns - len(names))]),
        row("expected", pad([str(part) for part in want])),
        row("yours", pad([str(part) for part in found])),
        row("", marks),
    ]
    return "\n".join(line.rstrip() for line in lines)


def check_dtype(got: Any, want: torch.dtype, *, rule: str = "dtype") -> None:
    if not isinstance(got, Tensor):
        raise CheckFailed("not-a-tensor", f"the result must be a tensor; it is {describe_value(got)}")
    if got.dtype != want:
        raise CheckFailed(rule, f"the result is of {name_of(got.dtype)}; it must be of {name_of(want)}")


def check_values(
    got: Any,
    want: Tensor,
    *,
    mistakes: Mapping[str, tuple[Tensor, str]] | None = None,
    rule: str = "values",
    message: str = "the values are not those that the task describes",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """`mistakes` are values that a misconception gives, by its name, with the words that tell it."""
    if not isinstance(got, Tensor):
        raise CheckFailed("not-a-tensor", f"the result must be a tensor; it is {describe_value(got)}")
    if got.shape != want.shape:
        raise CheckFailed("shape", f"the result has shape {tuple(got.shape)}; it must be {tuple(want.shape)}")
    if is_close(got, want, atol, rtol):
        return
    for name, (values, words) in (mistakes or {}).items():
        if values.shape == got.shape and is_close(got, values, max(atol, 1e-6), max(rtol, 1e-5)):
            raise CheckFailed(name, words)
    if got.is_floating_point() and not bool(got.isfinite().all()) and bool(want.isfinite().all()):
        where = tuple((~got.isfinite()).nonzero()[0].tolist())
        raise CheckFailed("not-finite", f"{message}: at {where} there is no finite number (NaN or infinity)")
    differs = ~torch.isclose(got.double(), want.double(), atol=atol, rtol=rtol, equal_nan=True)
    places = differs.nonzero()
    first = tuple(places[0].tolist()) if want.dim() else ()
    at = f"the first at {first}" if first else "it"
    raise CheckFailed(rule, f"{message}: {int(differs.sum()):,} of {want.numel():,} numbers differ, {at}")


def check_equal(
    got: Any,
    want: Any,
    *,
    mistakes: Mapping[str, tuple[Any, str]] | None = None,
    rule: str = "values",
    message: str = "the result is not what the task describes",
) -> None:
    """For plain Python values; a bool is no number here, and a list no tuple."""
    if is_identical(got, want):
        return
    for name, (value, words) in (mistakes or {}).items():
        if is_identical(got, value):
            raise CheckFailed(name, words)
    if type(got) is not type(want):
        raise CheckFailed("type", f"{message}: it must be of type {type(want).__name__}; it is {describe_value(got)}")
    where = ""
    if isinstance(want, (list, tuple, str, bytes)):
        if len(got) != len(want):
            where = f": it must have {len(want):,} items and has {len(got):,}"
        else:
            first = next(index for index in range(len(want)) if not is_identical(got[index], want[index]))
            where = f": item {first} is the first that differs"
    elif isinstance(want, dict):
        keys = [key for key in want if key not in got] or [key for key in got if key not in want]
        where = f": {keys[0]!r} is missing or too much" if keys else ": the value of a key differs"
    raise CheckFailed(rule, f"{message}{where}")


def is_identical(got: Any, want: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(got) is not type(want):
        return False
    if isinstance(want, Tensor):
        return got.dtype == want.dtype and torch.equal(got, want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(is_identical(one, other) for one, other in zip(got, want, strict=True))
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(is_identical(got[key], want[key]) for key in want)
    return bool(got == want)


def is_close(got: Tensor, want: Tensor, atol: float, rtol: float) -> bool:
    return torch.allclose(got.double(), want.double(), atol=atol, rtol=rtol, equal_nan=True)


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
