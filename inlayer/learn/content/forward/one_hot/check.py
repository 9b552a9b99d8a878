"""Checks for the task "A lookup as a matrix product"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "look_up"
PARAMETERS = ("table", "ids")
FORBIDDEN = ("embedding", "index_select", "inlayer")


def one_hot_shape(session: GradingSession) -> None:
    """one_hot has one value per row of the table"""
    table, ids = drawn(session)
    (batch, length), rows = ids.shape, len(table)
    got = session.call_other("one_hot", ids, rows, torch.float32)
    present = int(ids.max()) + 1
    mistakes = {
        "rows-from-ids": (
            (batch, length, present),
            "you inferred V from the largest id; use vocab_size",
        ),
        "hot-first": (
            (batch, rows, length),
            "V comes before T; it must be the last axis, because the product sums over it",
        ),
        "bag": ((batch, rows), "you added up the tokens of a text; each token needs its own vector"),
        "flat": ((batch * length, rows), "you flattened the batch; the result starts with the axes of the ids"),
    }
    check_shape(got, (batch, length, rows), "B T V", mistakes=mistakes)


def one_hot_values(session: GradingSession) -> None:
    """one_hot has a single 1 per token, at the index of its id, in the given dtype"""
    table, ids = drawn(session)
    rows = len(table)
    for dtype in (torch.float32, torch.float64):
        got = session.call_other("one_hot", ids, rows, dtype)
        check_shape(got, (*ids.shape, rows), "B T V")
        want = (ids[..., None] == torch.arange(rows)).to(dtype)
        mistakes = {
            "off-by-one": (want.roll(-1, -1), "the 1 is one index before its id; both start at 0"),
            "off-by-one-more": (
                want.roll(1, -1),
                "the 1 is one index after its id; both start at 0",
            ),
            "inverted": (1 - want, "0 and 1 are swapped"),
            "id-instead-of-one": (
                want * ids[..., None],
                "you wrote the id itself at its index; write 1",
            ),
            "cumulative": (
                (ids[..., None] >= torch.arange(rows)).to(dtype),
                "every index up to the id is 1, so the product would add up rows",
            ),
        }
        check_values(
            got,
            want,
            mistakes=mistakes,
            rule="one-hot-values",
            message="one_hot must be 1 at the ids and 0 everywhere else",
        )
        check_dtype(got, dtype, rule="one-hot-dtype")


def shape(session: GradingSession) -> None:
    """look_up returns one row per id"""
    table, ids = drawn(session)
    (batch, length), width = ids.shape, table.shape[1]
    mistakes = {
        "hidden-swapped": (
            (batch, width, length),
            "the values of a row come before the tokens; they must be the last axis",
        ),
        "tokens-added": ((batch, width), "you added up the rows of a text; each token needs its own"),
    }
    check_shape(session.call(table, ids), (batch, length, width), "B T D", mistakes=mistakes)


def values(session: GradingSession) -> None:
    """look_up returns the exact rows, in the dtype of the table"""
    for dtype in (torch.float32, torch.float64):
        table, ids = drawn(session)
        table = table.to(dtype)
        got = session.call(table, ids)
        check_values(got, table[ids], message="a vector is not the row of its id", atol=1e-6)
        check_dtype(got, dtype)


def gradient(session: GradingSession) -> None:
    """the gradient of the table is the transposed product"""
    table, ids = drawn(session)
    ids[1] = ids[0]
    arriving = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, of=0, weight=arriving)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the table: it was detached (detach, tolist, data)")
    want = torch.zeros_like(table).index_add_(0, ids.reshape(-1), arriving.reshape(-1, table.shape[1]))
    check_values(got, want, rule="gradient", message="the gradient of the table is wrong", atol=1e-5)


def is_product(session: GradingSession) -> None:
    """look_up is a product: every row of the table takes part"""
    table, ids = drawn(session)
    bad, column = int((ids.max() + 1) % len(table)), session.random_int(0, table.shape[1] - 1)
    table[bad, column] = torch.inf
    got = session.call(table, ids)
    check_shape(got, (*ids.shape, table.shape[1]), "B T D")
    if bool(got.isfinite().all()):
        raise CheckFailed(
            "not-a-product",
            "an infinite value in an unrequested row had no effect; 0 times infinity is NaN, so your "
            "code selected rows instead of multiplying",
        )


def infinite_row(session: GradingSession) -> None:
    """look_up returns infinity where a requested row contains it"""
    table, ids = drawn(session)
    ids[0, 0], ids[1, 0] = 1, 2
    column = session.random_int(0, table.shape[1] - 1)
    table[1, column] = torch.inf
    got = session.call(table, ids)
    check_shape(got, (*ids.shape, table.shape[1]), "B T D")
    if not bool((got[ids == 1][:, column] == torch.inf).all()):
        raise CheckFailed(
            "added-afterwards",
            "an infinite value in a requested row came back as something else; a product multiplies that "
            "row by 1 and only the others by 0",
        )


CHECKS = (one_hot_shape, one_hot_values, shape, values, gradient, is_product, infinite_row)


def walk_output(session: GradingSession) -> Tensor:
    """Return the learner's rows for "I love dogs" in the default sample."""
    table, ids = sample()
    rows: Tensor = session.call(table, ids)
    return rows


def drawn(session: GradingSession) -> tuple[Tensor, Tensor]:
    """Return a table and ids that do not use its last two rows; all sizes differ."""
    rows, width = session.random_int(12, 15), session.random_int(7, 9)
    ids = session.random_ids(rows - 2, (session.random_int(2, 3), session.random_int(4, 5)), low=1)
    return session.random_normal(rows, width), ids
