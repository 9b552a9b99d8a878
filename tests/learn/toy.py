"""A small task for the tests of the grader: write `add(table, ids)`, the sum of some rows."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import torch

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.course import Task
from inlayer.learn.session import CheckFailed, GradingSession

SOLUTION = "def add(table, ids):\n    return table[ids].sum(0)\n"


def shape(session: GradingSession) -> None:
    """one row"""
    check_shape(
        session.call(session.random_normal(4, 6), session.random_ids(4, (3,))),
        (6,),
        "D",
        mistakes={"not-added": ((3, 6), "the rows are not added")},
    )


def values(session: GradingSession) -> None:
    """the sum of the rows"""
    table, ids = session.random_normal(5, 3), session.random_ids(5, (2,))
    want = table[ids].sum(0)
    check_values(session.call(table, ids), want, mistakes={"mean": (want / 2, "this is the mean")}, atol=1e-6)


def gradient(session: GradingSession) -> None:
    """repeated ids add up"""
    table, ids, weight = session.random_normal(3, 2), torch.tensor([1, 1]), session.random_normal(2)
    got = session.gradient(table, ids, of=0, weight=weight)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the table")
    want = torch.zeros(3, 2)
    want[1] = 2 * weight
    check_values(got, want, atol=1e-6)


def walk_output(session: GradingSession) -> torch.Tensor:
    got = session.call(torch.eye(3), torch.tensor([0, 2]))
    assert isinstance(got, torch.Tensor)
    return got


def toy(forbidden: tuple[str, ...] = ("embedding",)) -> Task:
    """The task; its module exists only in memory."""
    module = ModuleType("inlayer.learn.content.toys.add.check")
    module.__dict__.update(
        NAME="add",
        PARAMETERS=("table", "ids"),
        FORBIDDEN=forbidden,
        CHECKS=(shape, values, gradient),
        walk_output=walk_output,
    )
    sys.modules[module.__name__] = module
    return Task(id="add", lesson="toys", folder=Path())
