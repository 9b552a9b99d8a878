"""Checks for the task "Update only the rows that were looked up"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "sgd_rows"
PARAMETERS = ("table", "ids", "upstream", "rate", "decay")


def add_up(ids: Tensor, upstream: Tensor, rows: int) -> Tensor:
    """Sum over all positions, as a product with one-hot rows."""
    return torch.nn.functional.one_hot(ids.flatten(), rows).to(upstream.dtype).T @ upstream.flatten(0, 1)


def draw(session: GradingSession) -> tuple[Tensor, Tensor, Tensor]:
    """Return a table, ids (one occurs twice in every text, and the first is not the smallest), and gradients."""
    rows, batch, tokens, width = (
        session.random_int(10, 14),
        session.random_int(2, 3),
        session.random_int(4, 5),
        session.random_int(3, 5),
    )
    ids = session.random_ids(rows - 2, (batch, tokens), low=2)
    ids[:, [0, -1]] = session.random_int(4, rows - 3)
    ids[0, 1] = 1
    return session.random_normal(rows, width), ids, session.random_normal(batch, tokens, width)


def step(session: GradingSession, *arguments: Any) -> tuple[Tensor, Any]:
    """Return the table after the call, and what the call returned."""
    answer = session.try_call(*arguments)
    value = value_of(answer)
    return answer.tensor_arguments[0], value


def returned(session: GradingSession) -> None:
    """returns the ids of the changed rows, each once, in ascending order"""
    table, ids, upstream = draw(session)
    _, got = step(session, table, ids, upstream, 0.5, 0.0)
    want = torch.tensor(sorted(set(ids.flatten().tolist())))
    first_seen = torch.tensor(list(dict.fromkeys(ids.flatten().tolist())))
    repeated = "you returned an id for every position; return each row once"
    check_shape(
        got,
        tuple(want.shape),
        "rows",
        mistakes={
            "rows-repeated": ((ids.numel(),), repeated),
            "whole-table": (
                tuple(table.shape),
                "you returned the whole table; return the ids of the changed rows",
            ),
        },
    )
    check_values(
        got,
        want,
        mistakes={
            "not-sorted": (first_seen, "the ids are in order of first appearance; return them in ascending order")
        },
        message="the returned ids are not those of the rows that were looked up",
    )


def in_place(session: GradingSession) -> None:
    """updates the caller's table"""
    table, ids, upstream = draw(session)
    after, _ = step(session, table, ids, upstream, 0.5, 0.0)
    if torch.equal(after, table):
        raise CheckFailed("not-in-place", "the table is unchanged after the call; update it in place, not a copy of it")


def values(session: GradingSession) -> None:
    """moves a row down along the sum of its gradients"""
    table, ids, upstream = draw(session)
    rate = session.random_int(2, 9) / 10
    gradient = add_up(ids, upstream, len(table))
    last = torch.zeros_like(gradient)
    for position, row in enumerate(ids.flatten().tolist()):
        last[row] = upstream.flatten(0, 1)[position]
    counts = torch.bincount(ids.flatten(), minlength=len(table)).clamp(min=1)[:, None]
    after, _ = step(session, table, ids, upstream, rate, 0.0)
    check_values(
        after,
        table - rate * gradient,
        mistakes={
            "last-one-wins": (table - rate * last, "a row at several positions is updated only with the last gradient"),
            "averaged": (
                table - rate * gradient / counts,
                "you averaged the gradients of a row's positions; add them up",
            ),
            "uphill": (table + rate * gradient, "the rows move up along the gradient, so the loss would grow"),
            "rate-ignored": (table - gradient, "the rows move by the whole gradient; multiply it by the learning rate"),
            "replaced": (
                torch.where(gradient.any(1, keepdim=True), -rate * gradient, table),
                "you replaced the rows with the step; subtract the step from them",
            ),
        },
        message="with decay 0, the updated rows are wrong",
        atol=1e-5,
    )


def decaying(session: GradingSession) -> None:
    """applies weight decay once to each row that was looked up"""
    table, ids, upstream = draw(session)
    rate, decay = session.random_int(3, 6) / 10, session.random_int(3, 6) / 10
    gradient = add_up(ids, upstream, len(table))
    counts = torch.bincount(ids.flatten(), minlength=len(table))[:, None]
    seen = (counts > 0).to(table.dtype)
    each_time = table.clone()
    for position, row in enumerate(ids.flatten().tolist()):
        each_time[row] -= rate * (upstream.flatten(0, 1)[position] + decay * each_time[row])
    after, _ = step(session, table, ids, upstream, rate, decay)
    plain = table - rate * gradient
    check_values(
        after,
        plain - rate * decay * seen * table,
        mistakes={
            "whole-table-decays": (
                plain - rate * decay * table,
                "rows that were not looked up have shrunk; only the rows of the batch may change",
            ),
            "decays-each-time": (
                each_time,
                "a row at several positions decays once per position; apply the decay once",
            ),
            "decays-each-position": (
                plain - rate * decay * counts * table,
                "you added up the decay of a row over its positions; apply it once",
            ),
            "decays-after": (
                plain - rate * decay * seen * plain,
                "you applied the decay to the row after its step; use the row before the step",
            ),
            "decay-without-rate": (plain - decay * seen * table, "the decay is not multiplied by the learning rate"),
            "decay-ignored": (plain, "the rows do not decay at all"),
            "decay-grows": (plain + rate * decay * seen * table, "the rows grow by the decay; they must shrink"),
        },
        message="with weight decay, the updated rows are wrong",
        atol=1e-5,
    )


def others_stay(session: GradingSession) -> None:
    """leaves all other rows unchanged, bit for bit, whatever they contain"""
    table, ids, upstream = draw(session)
    table[0] = float("nan")
    table[-1] = 3e38
    after, _ = step(session, table, ids, upstream, 0.5, 0.1)
    untouched = torch.ones(len(table), dtype=torch.bool)
    untouched[ids.flatten()] = False
    if not torch.equal(after[untouched].view(torch.int32), table[untouched].view(torch.int32)):
        raise CheckFailed("others-change", "a row that was not looked up changed; it must stay the same, bit for bit")
    if not bool(after[~untouched].isfinite().all()):
        raise CheckFailed(
            "others-leak", "a row of the batch contains NaN, which came from a row that was not looked up"
        )


def zero_gradients(session: GradingSession) -> None:
    """updates a row that was looked up even if its gradient is zero"""
    table, ids, upstream = draw(session)
    ids[1, 1:3] = 0
    upstream[1, 2] = -upstream[1, 1]  # row 0 is at these two positions
    upstream[0, 1] = 0  # row 1 at this one
    rate, decay = session.random_int(3, 6) / 10, session.random_int(3, 6) / 10
    after, got = step(session, table, ids, upstream, rate, decay)
    rows = torch.tensor(sorted(set(ids.flatten().tolist())))
    message = "you skipped a row that was looked up because its gradient is zero; the ids show which rows were used"
    if isinstance(got, Tensor) and len(got.flatten()) < len(rows):
        raise CheckFailed("rows-from-gradient", message)
    want = table.clone()
    want[rows] -= rate * (add_up(ids, upstream, len(table))[rows] + decay * table[rows])
    no_decay = want.clone()
    no_decay[:2] = table[:2]
    check_values(
        after,
        want,
        mistakes={"rows-from-gradient": (no_decay, message)},
        rule="zero-gradient",
        message="a row with zero gradient still decays",
        atol=1e-5,
    )
    check_values(got, rows, rule="zero-gradient", message="the returned ids are not those that were looked up")


CHECKS = (returned, in_place, values, decaying, others_stay, zero_gradients)
