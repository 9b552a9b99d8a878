"""Feedback on a failed check: the input, the learner's output, the expected kind of value, and a fresh example.

session, checks -> [feedback] -> grader -> front ends
- the expected values of the graded input are never shown, only their kind: "float32 tensor of shape (2, 5, 8)"
- the example uses another seed: the task's reference solution runs through the same check in its own runner
Tested in tests/learn/test_session.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from inlayer.learn.sandbox.protocol import RemoteHandle, Unsendable

__all__ = ["CheckFeedback", "RecordedCall", "describe_value", "dtype_name", "feedback_lines", "format_value",
           "record_call"]  # fmt: skip

MAX_ROWS, MAX_COLUMNS = 4, 6  # of a tensor that is printed
MAX_CHARACTERS = 160  # of another value
MAX_ITEMS = 40  # of a container


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """One call of the learner's code: how it looks, its inputs by name, and its output, formatted."""

    call: str
    inputs: tuple[tuple[str, str], ...]
    output: str


@dataclass(frozen=True, kw_only=True)
class CheckFeedback:
    """The call on which a check failed, what was expected, and the same kind of call done right."""

    call: RecordedCall
    expected: str = ""
    example: RecordedCall | None = None


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def describe_value(value: Any) -> str:
    """The kind of a value: "a float32 tensor of shape (2, 5, 8)", "a list of 3 items", "None"."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        kind = f"{dtype_name(value.dtype)} tensor of shape {tuple(value.shape)}"
    elif isinstance(value, (RemoteHandle, Unsendable)):
        kind = f"object of type {value.kind}"
    elif isinstance(value, (list, tuple, dict)):
        kind = f"{type(value).__name__} of {len(value)} item{'' if len(value) == 1 else 's'}"
    elif isinstance(value, (str, bytes)):
        kind = f"{type(value).__name__} of length {len(value)}"
    else:
        kind = f"value of type {type(value).__name__}"
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def format_value(value: Any) -> str:
    """A value as text: its kind, and its numbers if there are not too many."""
    if not isinstance(value, Tensor):
        shown = "" if value is None or isinstance(value, (RemoteHandle, Unsendable)) else _shorten(_plain(value))
        return shown or describe_value(value)
    kind = describe_value(value)
    if not value.numel():
        return kind
    flat = value.detach().reshape(-1, value.shape[-1] if value.dim() else 1)
    rows = [_format_row(row) for row in flat[:MAX_ROWS]]
    more = [f"... {len(flat) - MAX_ROWS:,} more rows"] if len(flat) > MAX_ROWS else []
    return "\n".join([kind, *rows, *more])


def _format_row(row: Tensor) -> str:
    numbers = [f"{float(one):.4g}" if row.is_floating_point() else str(one.item()) for one in row[:MAX_COLUMNS]]
    return "  ".join([*(f"{number:>8}" for number in numbers), *(["..."] if len(row) > MAX_COLUMNS else [])])


def _plain(value: Any) -> str:
    """A repr in which tensors inside a container are described, not printed."""
    if isinstance(value, (Tensor, RemoteHandle, Unsendable)):
        return f"<{describe_value(value)}>"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_plain(one)}" for key, one in list(value.items())[:MAX_ITEMS]) + "}"
    if isinstance(value, (list, tuple)):
        brackets = "[]" if isinstance(value, list) else "()"
        return brackets[0] + ", ".join(map(_plain, value[:MAX_ITEMS])) + brackets[1]
    return repr(value[:MAX_CHARACTERS] if isinstance(value, (str, bytes)) else value)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."


def record_call(
    name: str, parameters: tuple[str, ...], args: tuple[Any, ...], kwargs: Mapping[str, Any], output: Any
) -> RecordedCall:
    """Format a call and its output or error, with arguments named after the parameters if these are known."""
    names = [
        parameters[number] if number < len(parameters) else f"argument {number + 1}" for number in range(len(args))
    ]
    inputs = [*zip(names, args, strict=True), *kwargs.items()]
    listed = ", ".join([*names, *(f"{key}={key}" for key in kwargs)])
    return RecordedCall(
        call=f"{name}({listed})",
        inputs=tuple((key, format_value(one)) for key, one in inputs),
        output=f"raised {output}" if type(output).__name__ == "RaisedError" else format_value(output),
    )


def feedback_lines(feedback: CheckFeedback) -> Iterator[str]:
    """The feedback as plain text for the terminal and notebooks."""
    yield from _call_lines(feedback.call, "your output")
    if feedback.expected:
        yield from _labeled("expected", feedback.expected)
    if feedback.example is not None:
        yield ""
        yield "Another input, with the output it should give:"
        yield from _call_lines(feedback.example, "output")


def _call_lines(call: RecordedCall, label: str) -> Iterator[str]:
    yield f"{call.call}"
    for name, value in call.inputs:
        yield from _labeled(name, value)
    yield from _labeled(label, call.output)


def _labeled(label: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines()):
        yield f"  {label if not number else '':<12} {line}"
