"""Checks for the task "The two gradients of a tied table"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, describe_value

NAME = "tied_loss_gradient"
PARAMETERS = ("table", "ids", "targets")
FORBIDDEN = ("autograd", "inlayer")


def draw(session: GradingSession) -> tuple[Tensor, Tensor, Tensor]:
    """Return a table, ids with one repeated, and targets with one repeated."""
    rows, width, n_positions = session.random_int(9, 12), session.random_int(6, 8), session.random_int(4, 5)
    ids, targets = session.random_ids(rows, (n_positions,)), session.random_ids(rows, (n_positions,))
    ids[-1] = ids[0]
    targets[1] = targets[0]
    return session.random_normal(rows, width) / 2, ids, targets


def both(table: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Compute both parts with autograd: the table attached once in the lookup, once in the head."""
    ends = table.clone().requires_grad_(), table.clone().requires_grad_()
    loss = functional.cross_entropy(ends[0][ids] @ ends[1].T, targets)
    first, second = torch.autograd.grad(loss, ends)
    return first, second


def pair(got: Any) -> tuple[Any, Any]:
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise CheckFailed(
            "not-a-pair", f"return (from_lookup, from_head); your function returned {describe_value(got)}"
        )
    return got[0], got[1]


def shape(session: GradingSession) -> None:
    """returns two gradients of the size of the table"""
    table, ids, targets = draw(session)
    rows, width = table.shape
    for part in pair(session.call(table, ids, targets)):
        check_shape(
            part,
            (rows, width),
            "V D",
            mistakes={
                "only-positions": (
                    (len(ids), width),
                    "this has a row for every position; the table has one for every id",
                ),
                "transposed": ((width, rows), "rows and channels are swapped"),
            },
        )


def from_head(session: GradingSession) -> None:
    """from_head reaches every row"""
    table, ids, targets = draw(session)
    lookup, want = both(table, ids, targets)
    hidden, n_positions = table[ids], len(ids)
    one_hot = functional.one_hot(targets, len(table)).float()
    probabilities = (hidden @ table.T).softmax(-1)
    first, second = pair(session.call(table, ids, targets))
    if (
        isinstance(first, Tensor)
        and torch.allclose(first, want, atol=1e-5)
        and not torch.allclose(first, lookup, atol=1e-5)
    ):
        raise CheckFailed("swapped", "the two parts are in the wrong order; return (from_lookup, from_head)")
    check_values(
        second,
        want,
        mistakes={
            "target-not-subtracted": (
                probabilities.T @ hidden / n_positions,
                "every row is pushed away from the hidden states, even the target's: nothing pulls it closer",
            ),
            "only-targets": (
                -one_hot.T @ hidden / n_positions,
                "only the targets' rows get a gradient; the head compares with all rows",
            ),
            "not-averaged": (
                want * n_positions,
                "this is the gradient of the sum over all positions; the loss is their mean",
            ),
            "uphill": (
                -want,
                "the sign is wrong: this is the direction in which the loss falls; the gradient points where it grows",
            ),
            "inputs-for-targets": (
                (probabilities - functional.one_hot(ids, len(table)).float()).T @ hidden / n_positions,
                "you used the input ids as the targets",
            ),
            "both-together": (want + lookup, "this is the total gradient; return only the head's part"),
        },
        rule="from-head",
        message="the head's part of the gradient is wrong",
        atol=1e-5,
    )


def from_lookup(session: GradingSession) -> None:
    """from_lookup reaches the rows of the ids"""
    table, ids, targets = draw(session)
    want, _ = both(table, ids, targets)
    probabilities = (table[ids] @ table.T).softmax(-1)
    by_logits = (probabilities - functional.one_hot(targets, len(table)).float()) / len(ids)
    by_hidden = by_logits @ table
    last, at_targets = torch.zeros_like(table), torch.zeros_like(table).index_add_(0, targets, by_hidden)
    for position, row in enumerate(ids.tolist()):
        last[row] = by_hidden[position]
    first, _ = pair(session.call(table, ids, targets))
    check_values(
        first,
        want,
        mistakes={
            "last-one-wins": (last, "an id at several positions gets only the gradient of the last one"),
            "at-the-targets": (
                at_targets,
                "the gradient of a hidden state goes to the target's row; send it to the row it is a copy of",
            ),
            "lookup-forgotten": (
                torch.zeros_like(table),
                "the lookup's part is zero; the hidden states are rows of the table too",
            ),
        },
        rule="from-lookup",
        message="the lookup's part of the gradient is wrong",
        atol=1e-5,
    )


def large_logits(session: GradingSession) -> None:
    """handles logits in the hundreds"""
    table, ids, targets = draw(session)
    table = table * 40
    want = both(table, ids, targets)
    for part, wanted in zip(pair(session.call(table, ids, targets)), want, strict=True):
        if isinstance(part, Tensor) and not bool(part.isfinite().all()):
            raise CheckFailed("overflow", "large logits give NaN or infinity: exp of a large logit overflows")
        check_values(part, wanted, message="the result is wrong for large logits", atol=1e-3, rtol=1e-3)


CHECKS = (shape, from_head, from_lookup, large_logits)


def walk_output(session: GradingSession) -> Tensor:
    """Return both parts of the gradient for "I love dogs" from the learner's code: step 8 of the walk."""
    import inlayer

    model = inlayer.load("default")
    ids = torch.tensor(model.tokenizer.encode("I love dogs"))
    table = model.embeddings.token_embedding.weight.detach().float()
    first, second = pair(session.call(table, ids[:-1], ids[1:]))
    total: Tensor = (first + second)[ids]
    return total
