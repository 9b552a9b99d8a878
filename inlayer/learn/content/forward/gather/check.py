"""Checks of "Gather the rows yourself"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import check_dtype, check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "gather"
PARAMETERS = ("table", "ids")
FORBIDDEN_NAMES = ("embedding", "Embedding", "embedding_bag", "EmbeddingBag", "inlayer")


def shape(session: GradingSession) -> None:
    """one row for every id, whatever the shape of the ids"""
    table, (batch, length) = drawn(session)
    rows, width = table.shape
    ids = session.random_ids(rows, (batch, length))
    mistakes = {
        "flat": ((batch * length, width), "the batch was flattened and not given its shape back"),
        "axes-swapped": (
            (batch, width, length),
            "the numbers of a row stand before the tokens; they are the last axis",
        ),
        "whole-table": ((rows, width), "this is the table itself; one row for every id is asked for"),
    }
    check_shape(session.call(table, ids), (batch, length, width), "B T D", mistakes=mistakes)
    one_text = {"batch-added": ((1, length, width), "one text without a batch axis got one; the ids decide the shape")}
    check_shape(session.call(table, ids[0]), (length, width), "T D", mistakes=one_text, rule="one-text")


def values(session: GradingSession) -> None:
    """the row of the id that stands there, in the table's own dtype"""
    for dtype in (torch.float32, torch.bfloat16):
        table, size = drawn(session)
        table = table.to(dtype)
        ids = session.random_ids(len(table), size)
        ids[0, 2] = ids[0, 0]  # one that occurs twice
        answer = session.try_call(table, ids, return_arguments=True)
        got = answer.value if answer.raised is None else session.call(table, ids)
        in_order = ids.reshape(-1).sort().values.reshape(size)
        mistakes = {
            "off-by-one": (
                table[ids - 1],
                "each vector is the row before the one that was asked for; rows count from 0",
            ),
            "sorted": (table[in_order], "the rows came in the order of their ids; the order of the text counts"),
            "padding-zeroed": (
                table[ids].masked_fill((ids == 0)[..., None], 0.0),
                "the row of id 0 came out as zero; nobody said that 0 is padding",
            ),
            "transposed": (table[ids.T.reshape(size)], "the rows stand at the wrong places: B and T were mixed up"),
        }
        check_values(got, table[ids], mistakes=mistakes, message="a vector is not the row of its id")
        check_dtype(got, dtype)
        if not torch.equal(answer.tensor_arguments[0], table):
            raise CheckFailed("table-edited", "the table is not what it was before the call; a lookup only reads")


def gradient(session: GradingSession) -> None:
    """gradients flow back into the rows that were looked up"""
    table, size = drawn(session)
    ids = session.random_ids(len(table), size)
    ids[1] = ids[0]
    arriving = session.random_normal(*size, table.shape[1])
    got = session.gradient(table, ids, of=0, weight=arriving)
    if got is None:
        raise CheckFailed(
            "no-gradient", "no gradient reaches the table: the rows were copied out of reach (detach, tolist, data)"
        )
    want = torch.zeros_like(table).index_add_(0, ids.reshape(-1), arriving.reshape(-1, table.shape[1]))
    last = torch.zeros_like(table)
    last[ids.reshape(-1)] = arriving.reshape(-1, table.shape[1])
    mistakes = {"repeats-lost": (last, "of an id that occurs several times only one place sends its gradient back")}
    check_values(
        got, want, mistakes=mistakes, rule="gradient", message="the gradient of the table is not right", atol=1e-5
    )


def outside(session: GradingSession) -> None:
    """an id outside the table is an IndexError"""
    table, size = drawn(session)
    rows = len(table)
    for bad, rule, words in (
        (rows + session.random_int(0, 3), "too-large", "an id beyond the last row"),
        (-session.random_int(1, rows - 1), "wraps-around", "a negative id"),
    ):
        ids = session.random_ids(rows, size)
        ids[1, 1] = bad
        answer = session.try_call(table, ids)
        if answer.raised is None:
            held = ids.clamp(0, rows - 1)
            if isinstance(answer.value, Tensor) and torch.equal(answer.value, table[held]):
                raise CheckFailed(
                    "clamped", f"{words} was moved to the nearest row; the result is a wrong row, silently"
                )
            raise CheckFailed(rule, f"{words} gave a row, silently; it must be an IndexError")
        if "IndexError" not in (answer.raised.type, *answer.raised.bases):
            raise CheckFailed("another-error", f"{words} raised {answer.raised}; the task asks for an IndexError")


CHECKS = (shape, values, gradient, outside)


def walk_output(session: GradingSession) -> Tensor:
    """The learner's rows of "I love dogs" in the default sample."""
    table, ids = sample()
    rows: Tensor = session.call(table, ids)
    return rows


def drawn(session: GradingSession) -> tuple[Tensor, tuple[int, int]]:
    """A table (V, D) and a size (B, T) that differ in all their numbers."""
    return session.random_normal(session.random_int(9, 12), session.random_int(6, 8)), (
        session.random_int(2, 3),
        session.random_int(4, 5),
    )
