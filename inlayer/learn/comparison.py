"""A learner's own tensor beside the walk: is it what the walk of "I love dogs" shows?

verdict.own, trace -> [beside] -> doors
- compared with the ids, rows, hidden states and gradients of the walk, those of the task's own step first
- a tensor with one more axis is compared by its parts: a batch in which the walk's text is one of several
Checked in tests/learn/test_comparison.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from inlayer.checkpoint import load
from inlayer.trace import Pipeline, Trace

__all__ = ["TEXT", "Beside", "lay_beside"]

TEXT = "I love dogs"
CLOSE = 1e-5  # of the largest value: what another order of additions makes of the same numbers


@dataclass(frozen=True, kw_only=True)
class Beside:
    """What the tensor was compared with, and how it came out."""

    trace: Trace
    step: int
    says: str
    same: bool | None  # None: the walk has no tensor of this size


@cache
def _line() -> Pipeline:
    return Pipeline(load("default"), name="default")


def lay_beside(own: Tensor, step: int) -> Beside:
    """Compare a tensor with those of the walk; `step` is the one to show."""
    line = _line()
    whole = line.walk([TEXT], dims=line.facts().shape[1])
    other = None
    for name, theirs in sorted(_tensors(whole), key=lambda one: one[0][0] != step):
        for ours, of in _parts(own):
            if ours.shape != theirs.shape:
                continue
            if torch.equal(ours, theirs):
                return _said(line, step, f"{of} {name[1]} of the walk, bit for bit.", same=True)
            if torch.allclose(ours, theirs, rtol=0.0, atol=CLOSE * float(theirs.abs().max())):
                return _said(line, step, f"{of} {name[1]} of the walk, up to rounding.", same=True)
            if name[0] == step and other is None:
                other = f"They are of the size of {name[1]} of the walk, and other numbers."
    if other is not None:
        return _said(line, step, other, same=False)
    return _said(line, step, "The walk has no tensor of this size to compare them with.", same=None)


def _said(line: Pipeline, step: int, says: str, *, same: bool | None) -> Beside:
    return Beside(trace=line.walk([TEXT]), step=step, says=says, same=same)


def _tensors(trace: Trace) -> Iterator[tuple[tuple[int, str], Tensor]]:
    """What the walk computed, by step and name, in float64: no number of it changes by that."""
    cells = trace.texts[0].tokens
    yield (3, "the ids"), torch.tensor([cell.id for cell in cells], dtype=torch.float64)
    yield (5, "the rows"), torch.tensor([cell.row for cell in cells], dtype=torch.float64)
    yield (7, "the hidden states"), torch.tensor([cell.hidden for cell in cells], dtype=torch.float64)
    for number, turning in enumerate(trace.positions.rotary):
        of = f" of {turning.layer_type}" if turning.layer_type else ""
        turns = [cell.rotations[number] for cell in cells]
        yield (6, f"the angles{of}"), torch.tensor([turn.angles for turn in turns], dtype=torch.float64)
        yield (6, f"the cosines{of}"), torch.tensor([turn.cos for turn in turns], dtype=torch.float64)
        yield (6, f"the sines{of}"), torch.tensor([turn.sin for turn in turns], dtype=torch.float64)
    if trace.backward is not None:
        rows = trace.backward.rows
        yield (8, "the gradients"), torch.tensor([row.total for row in rows], dtype=torch.float64)
        lookups = torch.tensor([row.lookup for row in rows], dtype=torch.float64)
        yield (8, "the gradients by way of the lookup"), lookups
        if all(row.head is not None for row in rows):
            yield (8, "the gradients by way of the head"), torch.tensor([row.head for row in rows], dtype=torch.float64)


def _parts(own: Tensor) -> Iterator[tuple[Tensor, str]]:
    """The tensor, then what lies along its first axis, each with the beginning of a sentence about it."""
    whole = own.detach().to("cpu", torch.float64)
    alike = "They are the same numbers as"
    yield whole, alike
    if whole.dim() > 1:
        kind = "row" if whole.dim() == 2 else "batch entry"
        for number, part in enumerate(whole):
            yield part, alike if len(whole) == 1 else f"Its {kind} {number} is the same as"
