"""A task's checks: comparisons that fail with a rule and a message, and the feedback that a learner gets.

check.py of a task, session -> [checks] -> grader -> front ends
- a message names the rule, the position, and the expected kind of value, never the expected values
- if a known misconception explains a wrong result, the check fails with that misconception's rule and message
- feedback shows the input, the learner's output, and the expected kind: "float32 tensor of shape (2, 5, 8)"
- the example in the feedback uses a different seed: the reference solution runs the same check in a separate runner
Tested in tests/learn/test_assertions.py and tests/learn/test_feedback.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from inlayer.learn.sandbox.protocol import RemoteHandle
from inlayer.render.numbers import pluralize
from inlayer.tensors import dtype_name

MAX_ROWS, MAX_COLUMNS = 4, 6  # largest printed part of a tensor
MAX_CHARACTERS = 160  # maximum length of any other value
MAX_ITEMS = 40  # printed items of a container
NO_OUTPUT = object()  # the output of a call that did not return: its process was stopped


class CheckFailed(Exception):  # noqa: N818  # not an error: it reports a result
    """A check that failed: a short rule name, a message for the learner, and the expected kind of value."""

    def __init__(self, rule: str, message: str, expected: str = "") -> None:
        super().__init__(rule, message)
        self.rule, self.message, self.expected = rule, message, expected


@dataclass(frozen=True, kw_only=True)
class LearnerException:
    """An error raised by the learner's code: type, names of all bases, message, and line in their file."""

    type: str
    bases: tuple[str, ...]
    message: str
    line: int | None

    def __str__(self) -> str:
        line = "" if self.line is None else f" (line {self.line} of your file)"
        message = f": {self.message}" if self.message else ""
        return f"{self.type}{message}{line}"


def _require_tensor(got: Any, expected: str) -> Tensor:
    if not isinstance(got, Tensor):
        raise CheckFailed("not-a-tensor", f"the result must be a tensor; it is {describe_value(got)}", expected)
    return got


def check_shape(
    got: Any,
    want: tuple[int, ...],
    letters: str,
    *,
    mistakes: Mapping[str, tuple[tuple[int, ...], str]] | None = None,
    rule: str = "shape",
) -> None:
    """Check a shape. `letters` names the axes ("B T D"); `mistakes` maps rules to wrong shapes and their messages."""
    expected = f"a tensor of shape {want}"
    actual = tuple(_require_tensor(got, expected).shape)
    if actual == want:
        return
    drawing = draw_shapes(want, actual, letters)
    for name, (shape, message) in (mistakes or {}).items():
        if actual == shape:
            raise CheckFailed(name, f"{message}\n{drawing}", expected)
    raise CheckFailed(rule, f"the result has the wrong shape\n{drawing}", expected)


def draw_shapes(want: tuple[int, ...], actual: tuple[int, ...], letters: str) -> str:
    """Return the expected and the actual shape in two rows under the names of the axes."""
    names, axes = letters.split(), list(zip_longest(want, actual, fillvalue="-"))
    width = max(len(str(cell)) for cell in (*want, *actual, *names, 0))
    marks = ["" if size == actual_size else "^" for size, actual_size in axes]
    rows = (("", names), ("expected", [size for size, _ in axes]), ("yours", [size for _, size in axes]), ("", marks))
    aligned = ((label, "  ".join(f"{cell:>{width}}" for cell in cells)) for label, cells in rows)
    return "\n".join(f"{label:>9}  {cells}".rstrip() for label, cells in aligned)


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
    """Check a tensor's values. `mistakes` maps rules to the values and the messages of misconceptions."""
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
        index = tuple((~got.isfinite()).nonzero()[0].tolist())
        raise CheckFailed("not-finite", f"{message}: the number at {index} is NaN or infinite", expected)
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
    difference = ""
    if isinstance(want, (list, tuple, str, bytes)):
        if len(got) != len(want):
            difference = f": it must have {len(want):,} items, but it has {len(got):,}"
        else:
            first = next(index for index in range(len(want)) if not is_identical(got[index], want[index]))
            difference = f": item {first} is the first that differs"
    elif isinstance(want, dict):
        missing, extra = [key for key in want if key not in got], [key for key in got if key not in want]
        difference = f": the key {missing[0]!r} is missing" if missing else ": the value of a key differs"
        difference = f": the key {extra[0]!r} is not expected" if extra and not missing else difference
    raise CheckFailed(rule, f"{message}{difference}", expected)


def is_identical(got: Any, want: Any) -> bool:
    """Return whether two values are equal, with equal types all the way down."""
    if type(got) is not type(want):
        return False
    if isinstance(want, Tensor):
        return got.dtype == want.dtype and torch.equal(got, want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(is_identical, got, want))
    if isinstance(want, dict):
        return got.keys() == want.keys() and all(is_identical(got[key], want[key]) for key in want)
    return bool(got == want)


def is_close(got: Tensor, want: Tensor, atol: float, rtol: float) -> bool:
    return torch.allclose(got.double(), want.double(), atol=atol, rtol=rtol, equal_nan=True)


# ---- feedback


def describe_value(value: Any) -> str:
    """Return the kind of a value: "a float32 tensor of shape (2, 5, 8)", "a list of 3 items", "None"."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        kind = f"{dtype_name(value.dtype)} tensor of shape {tuple(value.shape)}"
    elif isinstance(value, RemoteHandle):
        kind = f"object of type {value.kind}"
    elif isinstance(value, (list, tuple, dict)):
        kind = f"{type(value).__name__} of {len(value)} item{'' if len(value) == 1 else 's'}"
    elif isinstance(value, (str, bytes)):
        kind = f"{type(value).__name__} of length {len(value)}"
    else:
        kind = f"value of type {type(value).__name__}"
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def format_value(value: Any) -> str:
    """Return a value as text: its kind, and its numbers if there are not too many."""
    if not isinstance(value, Tensor):
        shown = "" if value is None or isinstance(value, RemoteHandle) else _shorten(_plain(value))
        return shown or describe_value(value)
    kind = describe_value(value)
    if not value.numel():
        return kind
    flat = value.detach().reshape(-1, value.shape[-1] if value.dim() else 1)
    rows = [_format_row(row) for row in flat[:MAX_ROWS]]
    more = [f"... {pluralize(len(flat) - MAX_ROWS, 'more row')}"] if len(flat) > MAX_ROWS else []
    return "\n".join([kind, *rows, *more])


def _format_row(row: Tensor) -> str:
    numbers = [f"{float(value):.4g}" if row.is_floating_point() else str(value.item()) for value in row[:MAX_COLUMNS]]
    return "  ".join([*(f"{number:>8}" for number in numbers), *(["..."] if len(row) > MAX_COLUMNS else [])])


def _plain(value: Any) -> str:
    """Return a repr that describes tensors inside a container instead of printing them."""
    if isinstance(value, (Tensor, RemoteHandle)):
        return f"<{describe_value(value)}>"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_plain(item)}" for key, item in list(value.items())[:MAX_ITEMS]) + "}"
    if isinstance(value, (list, tuple)):
        items = ", ".join(map(_plain, value[:MAX_ITEMS]))
        return f"[{items}]" if isinstance(value, list) else f"({items}{',' * (len(value) == 1)})"
    return repr(value[:MAX_CHARACTERS] if isinstance(value, (str, bytes)) else value)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."


def labeled(label: str, text: str) -> list[str]:
    """Return lines of text, the first one with a label."""
    return [f"  {'' if number else label:<12} {line}" for number, line in enumerate(text.splitlines())]


@dataclass(kw_only=True)
class RecordedCall:
    """A call of the learner's code, with its output or error. `parameters` names the arguments, if known."""

    name: str
    parameters: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    output: Any = NO_OUTPUT

    def input_lines(self) -> list[str]:
        """Return the call and its inputs as lines of text."""
        unnamed = range(len(self.parameters), len(self.args))
        names = [*self.parameters[: len(self.args)], *(f"argument {number + 1}" for number in unnamed)]
        listed = ", ".join([*names, *(f"{key}={key}" for key in self.kwargs)])
        inputs = [*zip(names, self.args, strict=True), *self.kwargs.items()]
        lines = (line for key, value in inputs for line in labeled(key, format_value(value)))
        return [f"{self.name}({listed})", *lines]

    def lines(self, label: str) -> list[str]:
        """Return the call, its inputs, and its labeled output as lines of text."""
        if self.output is NO_OUTPUT:
            output = "none: the call was stopped"
        elif isinstance(self.output, LearnerException):
            output = f"raised {self.output}"
        else:
            output = format_value(self.output)
        return self.input_lines() + labeled(label, output)
