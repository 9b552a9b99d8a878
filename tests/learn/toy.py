"""A task small enough to see through, for the tests of the grader: write `add(table, ids)`, the sum of some rows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import torch

from inlayer.learn.checks import same_shape, same_values
from inlayer.learn.course import Task
from inlayer.learn.session import Exam, Failed

SOLUTION = "def add(table, ids):\n    return table[ids].sum(0)\n"


def shape(exam: Exam) -> None:
    """one row"""
    same_shape(exam.call(exam.normal(4, 6), exam.ids(4, (3,))), (6,), "D", wrong={"not-added": (3, 6)})


def values(exam: Exam) -> None:
    """the sum of the rows"""
    table, ids = exam.normal(5, 3), exam.ids(5, (2,))
    want = table[ids].sum(0)
    same_values(exam.call(table, ids), want, wrong={"mean": (want / 2, "this is the mean")}, atol=1e-6)


def gradient(exam: Exam) -> None:
    """repeated ids add up"""
    table, ids, weight = exam.normal(3, 2), torch.tensor([1, 1]), exam.normal(2)
    got = exam.gradient(table, ids, of=0, weight=weight)
    if got is None:
        raise Failed("no-gradient", "no gradient reaches the table")
    want = torch.zeros(3, 2)
    want[1] = 2 * weight
    same_values(got, want, atol=1e-6)


def own(exam: Exam) -> torch.Tensor:
    got = exam.call(torch.eye(3), torch.tensor([0, 2]))
    assert isinstance(got, torch.Tensor)
    return got


def toy() -> Task:
    """The task, in a module that no file has."""
    module = ModuleType("inlayer.learn.content.toys.add.check")
    module.__dict__.update(
        NAME="add", PARAMETERS=("table", "ids"), WITHOUT=("embedding",), CHECKS=(shape, values, gradient), own=own
    )
    sys.modules[module.__name__] = module
    return Task(id="add", lesson="toys", folder=Path())
