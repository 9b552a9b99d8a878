"""Checks of "A first forward pass"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.learn.checks import check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "basic_forward"
PARAMETERS = ("weight", "input_ids", "padding_idx")


def three_answers(session: GradingSession) -> None:
    """hidden states, five numbers, a bool"""
    table, ids, padding = drawn(session)
    got = answers(session, table, ids, padding)
    if not isinstance(got[2], bool):
        raise CheckFailed(
            "not-a-bool", "the third answer must be True or False, a Python bool; a tensor that holds one is none"
        )


def shape(session: GradingSession) -> None:
    """hidden states of shape (B, T, D)"""
    table, ids, padding = drawn(session)
    (batch, length), width = ids.shape, table.shape[1]
    hidden, first_five, _ = answers(session, table, ids, padding)
    mistakes = {
        "axes-swapped": (
            (batch, width, length),
            "the numbers of a row stand before the tokens; they are the last axis",
        ),
        "batch-lost": ((length, width), "the batch axis is gone: only one text was looked up"),
        "batch-flattened": ((batch * length, width), "the texts were joined: B and T became one axis"),
    }
    check_shape(hidden, (batch, length, width), "B T D", mistakes=mistakes)
    five_wrong = {
        "five-per-token": (
            (batch, length, 5),
            "five numbers of every token; asked for is the first token of the first text",
        ),
        "five-of-a-text": ((length, 5), "five numbers of every token of the first text; asked for is the first token"),
        "five-tokens": ((5, width), "five whole tokens; asked for are five numbers of one token"),
    }
    check_shape(first_five, (5,), "5", mistakes=five_wrong, rule="five-shape")


def values(session: GradingSession) -> None:
    """the row of every id, and the first five numbers of the first"""
    table, ids, padding = drawn(session)
    hidden, first_five, _ = answers(session, table, ids, padding)
    want = table[ids]
    zeroed = want.masked_fill((ids == padding)[..., None], 0.0)
    mistakes = {
        "padding-forced": (zeroed, "the vectors of padding tokens were set to zero; give what the table holds"),
        "off-by-one": (table[ids - 1], "each vector is the row before the one that was asked for; rows count from 0"),
    }
    check_values(hidden, want, mistakes=mistakes, message="the hidden states are not the rows of the ids")
    five_wrong = {
        "second-token": (want[0, 1, :5], "these are numbers of the second token; the first one has index 0"),
        "one-value-per-token": (
            want[0, :5, 0],
            "this is the first number of five tokens; asked for are five numbers of one",
        ),
        "five-of-the-table": (table[0, :5], "these are numbers of row 0 of the table, not of the first token"),
    }
    check_values(first_five, want[0, 0, :5], mistakes=five_wrong, rule="five-values", message="the five numbers differ")


def padding_is_zero(session: GradingSession) -> None:
    """the third answer is about every padding token, and about what the table holds"""
    table, ids, padding = drawn(session)
    if padding_answer(session, table, ids, padding):
        raise CheckFailed(
            "padding-assumed", "the padding row of this table is not zero, but the answer is True; look at the vectors"
        )
    zero = table.clone()
    zero[padding] = 0.0
    if not padding_answer(session, zero, ids, padding):
        raise CheckFailed("padding-misjudged", "every vector of a padding token is zero here, but the answer is False")
    almost = zero.clone()
    almost[padding, -1] = 1.0
    if padding_answer(session, almost, ids, padding):
        raise CheckFailed("part-of-the-row", "one number of the padding row is not zero, but the answer is True")
    cancelling = zero.clone()
    cancelling[padding, :2] = torch.tensor([1.0, -1.0]) * session.random_int(1, 9)
    if padding_answer(session, cancelling, ids, padding):
        raise CheckFailed(
            "sums-to-zero", "the numbers of the padding row cancel out, but they are not zero; do not add them up"
        )
    tiny = zero.clone()
    tiny[padding, session.random_int(0, table.shape[1] - 1)] = 1e-9
    if padding_answer(session, tiny, ids, padding):
        raise CheckFailed(
            "nearly-zero", "a number of the padding row is very small and not zero; zero is meant exactly"
        )
    row_zero = table.clone()
    row_zero[0] = 0.0
    if padding_answer(session, row_zero, ids, padding):
        raise CheckFailed(
            "zero-for-padding", "row 0 is zero here, but it is not the padding row; padding_idx says which is"
        )


def one_place(session: GradingSession) -> None:
    """padding is found wherever it stands"""
    table, ids, padding = drawn(session)
    for place in ((0, 0), (1, 2), (1, ids.shape[1] - 2)):
        sparse = torch.where(ids == padding, (ids + 1) % len(table), ids)
        sparse[place] = padding
        if padding_answer(session, table, sparse, padding):
            raise CheckFailed(
                "one-position", "a padding token that is not zero was missed; it stands elsewhere in the batch"
            )
    without = torch.where(ids == padding, (ids + 1) % len(table), ids)
    if not padding_answer(session, table, without, padding):
        raise CheckFailed(
            "no-padding", "there is no padding token in this batch, so none of them is not zero; the answer is True"
        )


def gradient(session: GradingSession) -> None:
    """the table learns through the hidden states"""
    table, ids, padding = drawn(session)
    arriving = session.random_normal(*ids.shape, table.shape[1])
    got = session.gradient(table, ids, padding, of=0, weight=arriving, item=0)
    if got is None:
        raise CheckFailed(
            "detached", "no gradient reaches the table through the hidden states: they were cut off from it"
        )
    want = torch.zeros_like(table).index_add_(0, ids.flatten(), arriving.flatten(0, 1))
    no_padding = want.clone()
    no_padding[padding] = 0.0  # nn.Embedding and F.embedding do so when they are told the padding row
    if not torch.allclose(got, no_padding, atol=1e-5):
        check_values(got, want, rule="gradient", message="the gradient of the table is not that of a lookup", atol=1e-5)


CHECKS = (three_answers, shape, values, padding_is_zero, one_place, gradient)


def walk_output(session: GradingSession) -> Tensor:
    """The learner's hidden states of "I love dogs" in the default sample."""
    table, ids = sample()
    hidden: Tensor = session.call(table, ids, 6_142)[0]
    return hidden


def drawn(session: GradingSession) -> tuple[Tensor, Tensor, int]:
    """A table without a zero, ids with padding in the middle and at the end, and the padding id, which is not 0."""
    rows, width = session.random_int(9, 14), session.random_int(6, 8)
    length = session.random_int(9, 11)  # another number than the width, and more than five
    padding = session.random_int(2, rows - 1)
    ids = session.random_ids(rows, (session.random_int(2, 4), length))
    ids[:, :2] = torch.tensor([1, 0])  # the first two tokens differ
    ids[0, length - 1] = ids[1, 3] = padding
    return session.random_normal(rows, width) + 0.01, ids, padding


def answers(session: GradingSession, table: Tensor, ids: Tensor, padding: int) -> list[Any]:
    got = session.call(table, ids, padding)
    if not isinstance(got, (tuple, list)) or len(got) != 3:
        raise CheckFailed("three-answers", "three answers are asked for: hidden states, five numbers, True or False")
    return list(got)


def padding_answer(session: GradingSession, table: Tensor, ids: Tensor, padding: int) -> bool:
    return bool(answers(session, table, ids, padding)[2])
