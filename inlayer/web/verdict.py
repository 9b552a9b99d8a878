"""A verdict on the learner's code as data for the page: the checks, the output, the comparison with the walk.

grader -> [verdict] -> course -> page
Tested in tests/web/test_learn.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from inlayer.learn.course import Task
from inlayer.learn.links import course_elements
from inlayer.trace.facts import plain

if TYPE_CHECKING:
    from torch import Tensor

    from inlayer.learn.comparison import Comparison
    from inlayer.learn.grader import Verdict

__all__ = ["verdict_json"]

MAX_PRINTED = 16_384  # characters of the code's output
MAX_ROWS, MAX_CHANNELS = 12, 8  # of the learner's tensor


def verdict_json(verdict: Verdict, task: Task, comparison: Comparison | None) -> dict[str, Any]:
    failure = verdict.failure
    line = re.search(r"\bline (\d{1,6})\b", failure.message) if failure else None
    printed = verdict.printed
    if len(printed) > MAX_PRINTED:
        printed = f"{printed[:MAX_PRINTED]}\n(and {len(printed) - MAX_PRINTED:,} more characters)"
    return {
        "task": task.id,
        "passed": verdict.passed,
        "summary": verdict.summary,
        "results": [
            {"name": one.name, "what": one.description, "state": one.state, "rule": one.rule, "message": one.message}
            for one in verdict.results
        ],
        "printed": printed,
        "line": int(line[1]) if line else None,
        "step": task.step,
        "why": course_elements(task.why) if verdict.passed else None,
        "own": None if comparison is None else _tensor_json(verdict.walk_output, comparison),
    }


def _tensor_json(tensor: Tensor | None, comparison: Comparison) -> dict[str, Any]:
    """The first rows of the learner's tensor, and how it compares with the walk's."""
    import torch

    assert tensor is not None
    own = tensor.detach().cpu()
    width = own.shape[-1] if own.dim() else 1
    rows = own.reshape(-1, width) if width else own.reshape(0, 1)
    before = [str(size) for size in own.shape[:-1]]
    heads = [",".join(_index(number, own.shape[:-1])) if before else "" for number in range(len(rows))]
    left = len(rows) - MAX_ROWS
    remarks = [comparison.message, f"{left:,} more rows are not shown." if left > 0 else ""]
    whole = not (own.is_floating_point() or own.is_complex())  # ids, positions, masks
    drawn = rows[:MAX_ROWS, :MAX_CHANNELS].to(torch.int64 if whole else torch.float64)
    return {
        "shape": list(own.shape),
        "dtype": str(own.dtype).removeprefix("torch."),
        "whole": whole,
        "rows": plain(drawn.tolist()),
        "heads": heads[:MAX_ROWS],
        "more": max(0, rows.shape[1] - MAX_CHANNELS),
        "note": " ".join(filter(None, remarks)),
    }


def _index(number: int, shape: tuple[int, ...]) -> list[str]:
    found: list[str] = []
    for size in reversed(shape):
        number, index = divmod(number, size)
        found.insert(0, str(index))
    return found
