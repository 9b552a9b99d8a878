"""Checks of "What the two ends teach a tied table"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.learn.checks import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, describe_value

NAME = "tied_loss_gradient"
PARAMETERS = ("table", "ids", "targets")
FORBIDDEN_NAMES = ("backward", "autograd", "func", "functorch", "vjp", "jvp", "ops", "getattr", "inlayer")


def draw(session: GradingSession) -> tuple[Tensor, Tensor, Tensor]:
    """A table, ids of which one stands there several times, targets of which one does."""
    rows, width, places = session.random_int(9, 12), session.random_int(6, 8), session.random_int(4, 5)
    ids, targets = session.random_ids(rows, (places,)), session.random_ids(rows, (places,))
    ids[-1] = ids[0]
    targets[1] = targets[0]
    return session.random_normal(rows, width) / 2, ids, targets


def both(table: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """What each end sends, by autograd: the table once alive in the lookup, once in the head."""
    ends = table.clone().requires_grad_(), table.clone().requires_grad_()
    loss = functional.cross_entropy(ends[0][ids] @ ends[1].T, targets)
    first, second = torch.autograd.grad(loss, ends)
    return first, second


def pair(got: Any) -> tuple[Any, Any]:
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise CheckFailed("not-a-pair", f"the result must be (from_lookup, from_head); it is {describe_value(got)}")
    return got[0], got[1]


def shape(session: GradingSession) -> None:
    """two gradients as large as the table"""
    table, ids, targets = draw(session)
    rows, width = table.shape
    for part in pair(session.call(table, ids, targets)):
        check_shape(
            part,
            (rows, width),
            "V D",
            mistakes={
                "only-positions": ((len(ids), width), "this has a row for every place; the table has one for every id"),
                "turned": ((width, rows), "rows and channels are swapped"),
            },
        )


def from_head(session: GradingSession) -> None:
    """the head teaches every row"""
    table, ids, targets = draw(session)
    lookup, want = both(table, ids, targets)
    hidden, places = table[ids], len(ids)
    one_hot = functional.one_hot(targets, len(table)).float()
    chances = (hidden @ table.T).softmax(-1)
    first, second = pair(session.call(table, ids, targets))
    if (
        isinstance(first, Tensor)
        and torch.allclose(first, want, atol=1e-5)
        and not torch.allclose(first, lookup, atol=1e-5)
    ):
        raise CheckFailed("swapped", "the two parts are there in the wrong order: (from_lookup, from_head)")
    check_values(
        second,
        want,
        mistakes={
            "target-not-subtracted": (
                chances.T @ hidden / places,
                "every row is pushed away from the hidden states, the target's too: nothing pulls it",
            ),
            "only-targets": (
                -one_hot.T @ hidden / places,
                "only the targets' rows are taught; the head compares with all rows",
            ),
            "not-averaged": (want * places, "this is the gradient of the sum over all places; the loss is their mean"),
            "uphill": (
                -want,
                "the sign is turned: this is the direction in which the loss falls; the gradient is where it grows",
            ),
            "inputs-for-targets": (
                (chances - functional.one_hot(ids, len(table)).float()).T @ hidden / places,
                "the ids that went in are taken for the targets",
            ),
            "both-together": (want + lookup, "this is the gradient of the whole; the head's part is asked for"),
        },
        rule="from-head",
        message="what the head sends to the table differs",
        atol=1e-5,
    )


def from_lookup(session: GradingSession) -> None:
    """the lookup teaches the rows of its ids"""
    table, ids, targets = draw(session)
    want, _ = both(table, ids, targets)
    chances = (table[ids] @ table.T).softmax(-1)
    by_logits = (chances - functional.one_hot(targets, len(table)).float()) / len(ids)
    by_hidden = by_logits @ table
    last, at_targets = torch.zeros_like(table), torch.zeros_like(table).index_add_(0, targets, by_hidden)
    for place, row in enumerate(ids.tolist()):
        last[row] = by_hidden[place]
    first, _ = pair(session.call(table, ids, targets))
    check_values(
        first,
        want,
        mistakes={
            "last-one-wins": (last, "an id that stands at several places gets the gradient of the last one only"),
            "at-the-targets": (
                at_targets,
                "the gradient of a hidden state goes to the target's row, not to the row it is a copy of",
            ),
            "lookup-forgotten": (
                torch.zeros_like(table),
                "the lookup sends nothing; the hidden states are rows of the table, too",
            ),
        },
        rule="from-lookup",
        message="what the lookup sends to the table differs",
        atol=1e-5,
    )


def large_logits(session: GradingSession) -> None:
    """logits of hundreds are no trouble"""
    table, ids, targets = draw(session)
    table = table * 40
    want = both(table, ids, targets)
    for part, wanted in zip(pair(session.call(table, ids, targets)), want, strict=True):
        if isinstance(part, Tensor) and not bool(part.isfinite().all()):
            raise CheckFailed(
                "overflow", "for large logits there are NaN or infinity: exp of a logit overflows by itself"
            )
        check_values(part, wanted, message="for large logits the result differs", atol=1e-3, rtol=1e-3)


CHECKS = (shape, from_head, from_lookup, large_logits)


def walk_output(session: GradingSession) -> Tensor:
    """What the learner's code sends to the rows of "I love dogs", from both ends: the walk's step 8."""
    import inlayer

    model = inlayer.load("default")
    assert model.tokenizer is not None
    ids = torch.tensor(model.tokenizer.encode("I love dogs"))
    table = model.table.in_memory().weight.detach().float()
    first, second = pair(session.call(table, ids[:-1], ids[1:]))
    total: Tensor = (first + second)[ids]
    return total
