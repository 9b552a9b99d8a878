"""Checks for the task "Gather the rows yourself"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "gather"
PARAMETERS = ("table", "ids")
FORBIDDEN = ("embedding", "inlayer")


def shape(session: GradingSession) -> None:
    """returns one row per id for ids of any shape"""
    table, (batch, length) = drawn(session)
    rows, width = table.shape
    ids = session.random_ids(rows, (batch, length))
    mistakes = {
        "flat": ((batch * length, width), "you flattened the batch and did not restore its shape"),
        "axes-swapped": (
            (batch, width, length),
            "the values of a row come before the tokens; they must be the last axis",
        ),
        "whole-table": ((rows, width), "this is the table itself; return one row per id"),
    }
    check_shape(session.call(table, ids), (batch, length, width), "B T D", mistakes=mistakes)
    one_text = {
        "batch-added": (
            (1, length, width),
            "you added a batch axis to a single text; the result follows the shape of the ids",
        )
    }
    check_shape(session.call(table, ids[0]), (length, width), "T D", mistakes=one_text, rule="one-text")


def values(session: GradingSession) -> None:
    """returns the row of each id in the table's own dtype"""
    for dtype in (torch.float32, torch.bfloat16):
        table, size = drawn(session)
        table = table.to(dtype)
        ids = session.random_ids(len(table), size)
        ids[0, 2] = ids[0, 0]  # one that occurs twice
        answer = session.try_call(table, ids)
        got = answer.value if answer.raised is None else session.call(table, ids)
        in_order = ids.reshape(-1).sort().values.reshape(size)
        mistakes = {
            "off-by-one": (
                table[ids - 1],
                "each vector is the row before the requested one; rows start at 0",
            ),
            "sorted": (table[in_order], "the rows are sorted by id; keep the order of the text"),
            "padding-zeroed": (
                table[ids].masked_fill((ids == 0)[..., None], 0.0),
                "the row of id 0 is zero in your result; id 0 is not padding here",
            ),
            "transposed": (table[ids.T.reshape(size)], "the rows are at the wrong positions: B and T are mixed up"),
        }
        check_values(got, table[ids], mistakes=mistakes, message="a vector is not the row of its id")
        check_dtype(got, dtype)
        if not torch.equal(answer.tensor_arguments[0], table):
            raise CheckFailed("table-edited", "your code modified the table; a lookup only reads")


def gradient(session: GradingSession) -> None:
    """lets gradients flow back into the rows that were looked up"""
    table, size = drawn(session)
    ids = session.random_ids(len(table), size)
    ids[1] = ids[0]
    arriving = session.random_normal(*size, table.shape[1])
    got = session.gradient(table, ids, of=0, weight=arriving)
    if got is None:
        raise CheckFailed(
            "no-gradient", "no gradient reaches the table: the rows were detached from it (detach, tolist, data)"
        )
    want = torch.zeros_like(table).index_add_(0, ids.reshape(-1), arriving.reshape(-1, table.shape[1]))
    last = torch.zeros_like(table)
    last[ids.reshape(-1)] = arriving.reshape(-1, table.shape[1])
    mistakes = {"repeats-lost": (last, "for a repeated id, only one position sends its gradient back")}
    check_values(got, want, mistakes=mistakes, rule="gradient", message="the gradient of the table is wrong", atol=1e-5)


def outside(session: GradingSession) -> None:
    """raises IndexError for an id outside the table"""
    table, size = drawn(session)
    rows = len(table)
    for bad, rule, words in (
        (rows + session.random_int(0, 3), "too-large", "an id past the last row"),
        (-session.random_int(1, rows - 1), "wraps-around", "a negative id"),
    ):
        ids = session.random_ids(rows, size)
        ids[1, 1] = bad
        answer = session.try_call(table, ids)
        if answer.raised is None:
            held = ids.clamp(0, rows - 1)
            if isinstance(answer.value, Tensor) and torch.equal(answer.value, table[held]):
                raise CheckFailed(
                    "clamped", f"you moved {words} to the nearest row; that silently returns the wrong row"
                )
            raise CheckFailed(rule, f"{words} silently returned a row; raise an IndexError")
        if "IndexError" not in (answer.raised.type, *answer.raised.bases):
            raise CheckFailed("another-error", f"{words} raised {answer.raised}; raise an IndexError")


CHECKS = (shape, values, gradient, outside)


def walk_output(session: GradingSession) -> Tensor:
    """Return the learner's rows for "I love dogs" in the default sample."""
    table, ids = sample()
    rows: Tensor = session.call(table, ids)
    return rows


def drawn(session: GradingSession) -> tuple[Tensor, tuple[int, int]]:
    """Return a table (V, D) and a size (B, T) in which all numbers differ."""
    return session.random_normal(session.random_int(9, 12), session.random_int(6, 8)), (
        session.random_int(2, 3),
        session.random_int(4, 5),
    )
