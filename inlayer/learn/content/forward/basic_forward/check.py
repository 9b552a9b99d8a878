"""Checks for the task "A first forward pass"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "basic_forward"
PARAMETERS = ("weight", "input_ids", "padding_idx")


def three_answers(session: GradingSession) -> None:
    """returns hidden states, five values, and a bool"""
    table, ids, padding = drawn(session)
    got = answers(session, table, ids, padding)
    if not isinstance(got[2], bool):
        raise CheckFailed(
            "not-a-bool",
            "the third result must be a Python bool, True or False; a tensor that contains one is not accepted",
        )


def shape(session: GradingSession) -> None:
    """returns hidden states of shape (B, T, D)"""
    table, ids, padding = drawn(session)
    (batch, length), width = ids.shape, table.shape[1]
    hidden, first_five, _ = answers(session, table, ids, padding)
    mistakes = {
        "axes-swapped": (
            (batch, width, length),
            "the values of a row come before the tokens; they must be the last axis",
        ),
        "batch-lost": ((length, width), "the batch axis is missing: you looked up only one text"),
        "batch-flattened": ((batch * length, width), "you joined the texts: B and T became one axis"),
    }
    check_shape(hidden, (batch, length, width), "B T D", mistakes=mistakes)
    five_wrong = {
        "five-per-token": (
            (batch, length, 5),
            "you returned five values of every token; return those of the first token of the first text",
        ),
        "five-of-a-text": (
            (length, 5),
            "you returned five values of every token of the first text; return those of the first token",
        ),
        "five-tokens": ((5, width), "you returned five whole tokens; return five values of one token"),
    }
    check_shape(first_five, (5,), "5", mistakes=five_wrong, rule="five-shape")


def values(session: GradingSession) -> None:
    """returns the row of every id and the first five values of the first one"""
    table, ids, padding = drawn(session)
    hidden, first_five, _ = answers(session, table, ids, padding)
    want = table[ids]
    zeroed = want.masked_fill((ids == padding)[..., None], 0.0)
    mistakes = {
        "padding-forced": (zeroed, "you set the vectors of padding tokens to zero; return what is in the table"),
        "off-by-one": (table[ids - 1], "each vector is the row before the requested one; rows start at 0"),
    }
    check_values(hidden, want, mistakes=mistakes, message="the hidden states are not the rows of the ids")
    five_wrong = {
        "second-token": (want[0, 1, :5], "these are values of the second token; the first one has index 0"),
        "one-value-per-token": (
            want[0, :5, 0],
            "this is the first value of five tokens; return five values of one token",
        ),
        "five-of-the-table": (table[0, :5], "these are values of row 0 of the table, not of the first token"),
    }
    check_values(
        first_five, want[0, 0, :5], mistakes=five_wrong, rule="five-values", message="the five values are wrong"
    )


def padding_is_zero(session: GradingSession) -> None:
    """checks every padding token against what is in the table"""
    table, ids, padding = drawn(session)
    if padding_answer(session, table, ids, padding):
        raise CheckFailed(
            "padding-assumed", "the padding row of this table is not zero, but you returned True; look at the vectors"
        )
    zero = table.clone()
    zero[padding] = 0.0
    if not padding_answer(session, zero, ids, padding):
        raise CheckFailed("padding-misjudged", "every padding vector is zero here, but you returned False")
    almost = zero.clone()
    almost[padding, -1] = 1.0
    if padding_answer(session, almost, ids, padding):
        raise CheckFailed("part-of-the-row", "one value of the padding row is not zero, but you returned True")
    cancelling = zero.clone()
    cancelling[padding, :2] = torch.tensor([1.0, -1.0]) * session.random_int(1, 9)
    if padding_answer(session, cancelling, ids, padding):
        raise CheckFailed(
            "sums-to-zero", "the values of the padding row cancel out, but they are not zero; do not add them up"
        )
    tiny = zero.clone()
    tiny[padding, session.random_int(0, table.shape[1] - 1)] = 1e-9
    if padding_answer(session, tiny, ids, padding):
        raise CheckFailed(
            "nearly-zero", "one value of the padding row is very small but not zero; test for exactly zero"
        )
    row_zero = table.clone()
    row_zero[0] = 0.0
    if padding_answer(session, row_zero, ids, padding):
        raise CheckFailed("zero-for-padding", "row 0 is zero here, but it is not the padding row; use padding_idx")


def padding_anywhere(session: GradingSession) -> None:
    """finds padding anywhere in the batch"""
    table, ids, padding = drawn(session)
    for index in ((0, 0), (1, 2), (1, ids.shape[1] - 2)):
        sparse = torch.where(ids == padding, (ids + 1) % len(table), ids)
        sparse[index] = padding
        if padding_answer(session, table, sparse, padding):
            raise CheckFailed("one-position", "you missed a nonzero padding token elsewhere in the batch")
    without = torch.where(ids == padding, (ids + 1) % len(table), ids)
    if not padding_answer(session, table, without, padding):
        raise CheckFailed("no-padding", "this batch has no padding token, so no padding token is nonzero; return True")


def gradient(session: GradingSession) -> None:
    """lets gradients reach the table through the hidden states"""
    table, ids, padding = drawn(session)
    arriving = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, padding, of=0, weight=arriving, item=0)
    if got is None:
        raise CheckFailed("detached", "no gradient reaches the table: the hidden states are detached from it")
    want = torch.zeros_like(table).index_add_(0, ids.flatten(), arriving.flatten(0, 1))
    no_padding = want.clone()
    no_padding[padding] = 0.0  # nn.Embedding and F.embedding do this when they know the padding row
    if not torch.allclose(got, no_padding, atol=1e-5):
        check_values(got, want, rule="gradient", message="the gradient of the table is not that of a lookup", atol=1e-5)


CHECKS = (three_answers, shape, values, padding_is_zero, padding_anywhere, gradient)


def walk_output(session: GradingSession) -> Tensor:
    """Return the learner's hidden states for "I love dogs" in the default sample."""
    table, ids = sample()
    hidden: Tensor = session.call(table, ids, 6_142)[0]
    return hidden


def drawn(session: GradingSession) -> tuple[Tensor, Tensor, int]:
    """Return a table without zeros, ids with padding in the middle and at the end, and a padding id other than 0."""
    rows, width = session.random_int(9, 14), session.random_int(6, 8)
    length = session.random_int(9, 11)  # different from the width, and more than five
    padding = session.random_int(2, rows - 1)
    ids = session.random_ids(rows, (session.random_int(2, 4), length))
    ids[:, :2] = torch.tensor([1, 0])  # the first two tokens differ
    ids[0, length - 1] = ids[1, 3] = padding
    return session.random_normal(rows, width) + 0.01, ids, padding


def answers(session: GradingSession, table: Tensor, ids: Tensor, padding: int) -> list[Any]:
    got = session.call(table, ids, padding)
    if not isinstance(got, (tuple, list)) or len(got) != 3:
        raise CheckFailed("three-answers", "return three results: hidden states, five values, and True or False")
    return list(got)


def padding_answer(session: GradingSession, table: Tensor, ids: Tensor, padding: int) -> bool:
    return bool(answers(session, table, ids, padding)[2])
