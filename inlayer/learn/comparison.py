"""Comparison of a learner's tensor with the walk of "I love dogs".

Verdict.walk_output, trace -> [comparison] -> front ends
- the tensor is compared with the walk's ids, rows, hidden states, and gradients, starting with the task's step
- a tensor with one more axis (such as a batch that contains the walk's text) is compared part by part
Tested in tests/learn/test_comparison.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from inlayer.checkpoint import load
from inlayer.trace import Pipeline, Trace

TEXT = "I love dogs"
TOLERANCE = 1e-5  # relative to the largest value; allows for a different order of additions


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The learner's tensor, the walk it was compared with, and the result in a sentence."""

    tensor: Tensor
    trace: Trace
    message: str


@cache
def _pipeline() -> Pipeline:
    return Pipeline(load("default"), name="default")


def compare(tensor: Tensor, step: int) -> Comparison:
    """Compare a tensor with the walk's tensors, starting with those of a step."""
    pipeline = _pipeline()
    trace = pipeline.walk([TEXT], dims=pipeline.facts().shape[1])
    candidates = sorted(_tensors(trace), key=lambda candidate: candidate[0] != step)
    different = ""
    for (of_step, name, theirs), (ours, subject) in itertools.product(candidates, _parts(tensor)):
        if ours.shape != theirs.shape:
            continue
        if torch.allclose(ours, theirs, rtol=0.0, atol=TOLERANCE * float(theirs.abs().max())):
            precision = "bit for bit" if torch.equal(ours, theirs) else "up to rounding"
            message = f"{subject} {name} of the walk, {precision}."
            break
        if of_step == step and not different:
            different = f"It has the shape of {name} of the walk, but different numbers."
    else:
        message = different or "The walk has no tensor of this shape to compare with."
    return Comparison(tensor=tensor, trace=pipeline.walk([TEXT]), message=message)


def _tensors(trace: Trace) -> Iterator[tuple[int, str, Tensor]]:
    """Yield the tensors of the walk with their step and name, in float64, which represents them exactly."""
    assert trace.backward is not None
    cells, gradients = trace.texts[0].tokens, trace.backward.rows
    tensors: list[tuple[int, str, list[Any]]] = [
        (3, "the ids", [cell.id for cell in cells]),
        (5, "the rows", [cell.row for cell in cells]),
        (6, "the angles", [cell.rotations[0].angles for cell in cells]),
        (6, "the cosines", [cell.rotations[0].cos for cell in cells]),
        (6, "the sines", [cell.rotations[0].sin for cell in cells]),
        (7, "the hidden states", [cell.hidden for cell in cells]),
        (8, "the gradients", [row.total for row in gradients]),
        (8, "the gradients through the lookup", [row.lookup for row in gradients]),
        (8, "the gradients through the head", [row.head for row in gradients]),
    ]
    for step, name, values in tensors:
        yield step, name, torch.tensor(values, dtype=torch.float64)


def _parts(tensor: Tensor) -> list[tuple[Tensor, str]]:
    """Return the tensor and its slices along the first axis, each with the beginning of a sentence about it."""
    whole = tensor.detach().to("cpu", torch.float64)
    alike = "It has the same numbers as"
    kind = "row" if whole.dim() == 2 else "batch entry"
    slices = [(part, alike if len(whole) == 1 else f"Its {kind} {index} has the same numbers as")
              for index, part in enumerate(whole if whole.dim() > 1 else ())]  # fmt: skip
    return [(whole, alike), *slices]
