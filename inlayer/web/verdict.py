"""A verdict on the learner's code, as facts for the page: the checks, what it printed, its tensor beside the walk's.

grader -> [verdict] -> desk -> page
Checked in tests/web/test_learn.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from inlayer.learn.course import Task
from inlayer.learn.markdown import render
from inlayer.trace.facts import plain

if TYPE_CHECKING:
    from torch import Tensor

    from inlayer.learn.grader import Verdict

__all__ = ["verdict_told"]

MAX_PRINTED = 16_384  # characters of what the code printed
OWN_ROWS, OWN_CHANNELS = 12, 8  # of the learner's tensor


def verdict_told(verdict: Verdict, task: Task) -> dict[str, Any]:
    failure = verdict.failure
    line = re.search(r"\bline (\d{1,6})\b", failure.message) if failure else None
    printed = verdict.printed
    if len(printed) > MAX_PRINTED:
        printed = f"{printed[:MAX_PRINTED]}\n(and {len(printed) - MAX_PRINTED:,} characters more)"
    return {
        "task": task.id,
        "passed": verdict.passed,
        "summary": verdict.summary,
        "results": [
            {"name": one.name, "what": one.what, "state": one.state, "rule": one.rule, "message": one.message}
            for one in verdict.results
        ],
        "printed": printed,
        "line": int(line[1]) if line else None,
        "step": task.step,
        "why": render(task.why) if verdict.passed else None,
        "own": _own(verdict.own, task.step) if verdict.passed and verdict.own is not None else None,
    }


def _own(own: Tensor, step: int) -> dict[str, Any]:
    """The learner's tensor as rows of numbers, the first of them, and what it is beside the walk's."""
    import torch

    from inlayer.learn.comparison import lay_beside

    own = own.detach().cpu()
    width = own.shape[-1] if own.dim() else 1
    rows = own.reshape(-1, width) if width else own.reshape(0, 1)
    before = [str(size) for size in own.shape[:-1]]
    heads = [",".join(_index(number, own.shape[:-1])) if before else "" for number in range(len(rows))]
    left = len(rows) - OWN_ROWS
    remarks = [lay_beside(own, step).says, f"{left:,} more rows are not drawn." if left > 0 else ""]
    whole = not (own.is_floating_point() or own.is_complex())  # ids, places, masks
    drawn = rows[:OWN_ROWS, :OWN_CHANNELS].to(torch.int64 if whole else torch.float64)
    return {
        "shape": list(own.shape),
        "dtype": str(own.dtype).removeprefix("torch."),
        "whole": whole,
        "rows": plain(drawn.tolist()),
        "heads": heads[:OWN_ROWS],
        "more": max(0, rows.shape[1] - OWN_CHANNELS),
        "note": " ".join(filter(None, remarks)),
    }


def _index(number: int, shape: tuple[int, ...]) -> list[str]:
    found: list[str] = []
    for size in reversed(shape):
        number, place = divmod(number, size)
        found.insert(0, str(place))
    return found
