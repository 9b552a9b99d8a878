"""Comparisons for the checks of a task: shapes, dtypes, values, plain Python objects.

check.py of a task -> [checks] -> CheckFailed
- a message names the rule, the position and the expected kind, never the expected values
- a wrong result that a known misconception explains fails with the misconception's own rule and message
Tested in tests/learn/test_checks.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from inlayer.learn.feedback import dtype_name
from inlayer.learn.session import CheckFailed, describe_value

__all__ = ["check_dtype", "check_equal", "check_shape", "check_values"]


def _require_tensor(got: Any, expected: str) -> Tensor:
    if not isinstance(got, Tensor):
        raise CheckFailed("not-a-tensor", f"the result must be a tensor; it is {describe_value(got)}", expected)
    return got


def check_shape(
    got: Any,
    want: tuple[int, ...],
    letters: str,
    *,
    mistakes: Mapping[str, tuple[int, ...] | tuple[tuple[int, ...], str]] | None = None,
    rule: str = "shape",
) -> None:
    """Check a shape. `letters` names the axes ("B T D"); `mistakes` maps a rule to a wrong shape and its message."""
    expected = f"a tensor of shape {want}"
    found = tuple(_require_tensor(got, expected).shape)
    if found == want:
        return
    drawing = draw_shapes(want, found, letters)
    for name, mistake in (mistakes or {}).items():
        with_message = mistake if mistake and isinstance(mistake[0], tuple) else (mistake, name.replace("-", " "))
        shape, message = with_message
        if found == shape:
            raise CheckFailed(name, f"{message}\n{drawing}", expected)
    raise CheckFailed(rule, f"the result has the wrong shape\n{drawing}", expected)


def draw_shapes(want: tuple[int, ...], found: tuple[int, ...], letters: str) -> str:
    """The expected and the actual shape in two rows under the names of the axes."""
    names = letters.split()
    width = max(len(str(size)) for size in (*want, *found, *names, 0))
    columns = max(len(want), len(found), len(names))

    def row(label: str, cells: list[str]) -> str:
        return f"{label:>9}  " + "  ".join(f"{cell:>{width}}" for cell in cells)

    def pad(cells: list[str]) -> list[str]:
        return cells + ["-"] * (columns - len(cells))

    marks = ["" if want[axis : axis + 1] == found[axis : axis + 1] else "^" for axis in range(columns)]
    lines = [
        row("", [*names, *[""] * (columns - len(names))]),
        row("expected", pad([str(size) for size in want])),
        row("yours", pad([str(size) for size in found])),
        row("", marks),
    ]
    return "\n".join(line.rstrip() for line in lines)


def check_dtype(got: Any, want: torch.dtype, *, rule: str = "dtype") -> None:
    tensor = _require_tensor(got, f"a tensor of dtype {dtype_name(want)}")
    if tensor.dtype != want:
        message = f"the result has dtype {dtype_name(tensor.dtype)}, but it must have {dtype_name(want)}"
        raise CheckFailed(rule, message, describe_value(tensor.to(want)))


def check_values(
    got: Any,
    want: Tensor,
    *,
    mistakes: Mapping[str, tuple[Tensor, str]] | None = None,
    rule: str = "values",
    message: str = "the values are not what the task describes",
    atol: float = 0.0,
    rtol: float = 0.0,
) -> None:
    """Check the values of a tensor. `mistakes` maps a rule to the values of a misconception and its message."""
    expected = describe_value(want)
    got = _require_tensor(got, expected)
    if got.shape != want.shape:
        shapes = f"the result has shape {tuple(got.shape)}, but it must have {tuple(want.shape)}"
        raise CheckFailed("shape", shapes, expected)
    if is_close(got, want, atol, rtol):
        return
    for name, (values, explanation) in (mistakes or {}).items():
        if values.shape == got.shape and is_close(got, values, max(atol, 1e-6), max(rtol, 1e-5)):
            raise CheckFailed(name, explanation, expected)
    if got.is_floating_point() and not bool(got.isfinite().all()) and bool(want.isfinite().all()):
        where = tuple((~got.isfinite()).nonzero()[0].tolist())
        raise CheckFailed("not-finite", f"{message}: the number at {where} is NaN or infinite", expected)
    differs = ~torch.isclose(got.double(), want.double(), atol=atol, rtol=rtol, equal_nan=True)
    first = f", the first at {tuple(differs.nonzero()[0].tolist())}" if want.dim() else ""
    raise CheckFailed(rule, f"{message}: {int(differs.sum()):,} of {want.numel():,} numbers differ{first}", expected)


def check_equal(
    got: Any,
    want: Any,
    *,
    mistakes: Mapping[str, tuple[Any, str]] | None = None,
    rule: str = "values",
    message: str = "the result is not what the task describes",
) -> None:
    """Check a plain Python value; True is not 1, and a list is not a tuple."""
    if is_identical(got, want):
        return
    expected = describe_value(want)
    for name, (value, explanation) in (mistakes or {}).items():
        if is_identical(got, value):
            raise CheckFailed(name, explanation, expected)
    if type(got) is not type(want):
        types = f"{message}: it must be of type {type(want).__name__}; it is {describe_value(got)}"
        raise CheckFailed("type", types, expected)
    where = ""
    if isinstance(want, (list, tuple, str, bytes)):
        if len(got) != len(want):
            where = f": it must have {len(want):,} items, but it has {len(got):,}"
        else:
            first = next(index for index in range(len(want)) if not is_identical(got[index], want[index]))
            where = f": item {first} is the first that differs"
    elif isinstance(want, dict):
        missing, extra = [key for key in want if key not in got], [key for key in got if key not in want]
        where = f": the key {missing[0]!r} is missing" if missing else ": the value of a key differs"
        where = f": the key {extra[0]!r} does not belong there" if extra and not missing else where
    raise CheckFailed(rule, f"{message}{where}", expected)


def is_identical(got: Any, want: Any) -> bool:
    """Whether two values are equal, with equal types all the way down."""
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
