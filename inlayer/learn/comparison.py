"""Comparison of a learner's tensor with the walk of "I love dogs".

Verdict.walk_output, trace -> [comparison] -> front ends
- compared with the ids, rows, hidden states and gradients of the walk, starting with the task's own step
- a tensor with one more axis is compared part by part, such as a batch that contains the walk's text
Tested in tests/learn/test_comparison.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from inlayer.checkpoint import load
from inlayer.trace import Pipeline, Trace

__all__ = ["TEXT", "Comparison", "compare"]

TEXT = "I love dogs"
TOLERANCE = 1e-5  # relative to the largest value; allows for another order of additions


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The step of the walk that was compared, and the result in a sentence."""

    trace: Trace
    step: int
    message: str
    matches: bool | None  # None: the walk has no tensor of this shape


@cache
def _pipeline() -> Pipeline:
    return Pipeline(load("default"), name="default")


def compare(tensor: Tensor, step: int) -> Comparison:
    """Compare a tensor with those of the walk; `step` is the step to show."""
    pipeline = _pipeline()
    whole = pipeline.walk([TEXT], dims=pipeline.facts().shape[1])
    other = None
    for name, theirs in sorted(_tensors(whole), key=lambda one: one[0][0] != step):
        for ours, subject in _parts(tensor):
            if ours.shape != theirs.shape:
                continue
            if torch.equal(ours, theirs):
                return _result(pipeline, step, f"{subject} {name[1]} of the walk, bit for bit.", matches=True)
            if torch.allclose(ours, theirs, rtol=0.0, atol=TOLERANCE * float(theirs.abs().max())):
                return _result(pipeline, step, f"{subject} {name[1]} of the walk, up to rounding.", matches=True)
            if name[0] == step and other is None:
                other = f"It has the shape of {name[1]} of the walk, but different numbers."
    if other is not None:
        return _result(pipeline, step, other, matches=False)
    return _result(pipeline, step, "The walk has no tensor of this shape to compare with.", matches=None)


def _result(pipeline: Pipeline, step: int, message: str, *, matches: bool | None) -> Comparison:
    return Comparison(trace=pipeline.walk([TEXT]), step=step, message=message, matches=matches)


def _tensors(trace: Trace) -> Iterator[tuple[tuple[int, str], Tensor]]:
    """The tensors of the walk by step and name, in float64, which represents them exactly."""
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
        yield (8, "the gradients through the lookup"), lookups
        if all(row.head is not None for row in rows):
            yield (8, "the gradients through the head"), torch.tensor([row.head for row in rows], dtype=torch.float64)


def _parts(tensor: Tensor) -> Iterator[tuple[Tensor, str]]:
    """The tensor and its slices along the first axis, each with the start of a sentence about it."""
    whole = tensor.detach().to("cpu", torch.float64)
    alike = "It has the same numbers as"
    yield whole, alike
    if whole.dim() > 1:
        kind = "row" if whole.dim() == 2 else "batch entry"
        for number, part in enumerate(whole):
            yield part, alike if len(whole) == 1 else f"Its {kind} {number} has the same numbers as"
