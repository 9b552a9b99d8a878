"""Checks of "A padding row that stays zero when tied"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "tied_padding"
PARAMETERS = ("hidden", "table", "padding_idx")
FORBIDDEN_NAMES = ("inlayer",)


def draw(session: GradingSession) -> tuple[Tensor, Tensor, int]:
    """Hidden states, a table whose padding row is not zero, and that row; sizes that cannot be mistaken."""
    rows, width = session.random_int(10, 13), session.random_int(6, 8)
    return (
        session.random_normal(2, session.random_int(3, 4), width),
        session.random_normal(rows, width),
        session.random_int(1, width - 1),
    )


def shape(session: GradingSession) -> None:
    """a logit for every row, the padding row included"""
    hidden, table, pad = draw(session)
    got = session.call(hidden, table, pad)
    batch, tokens, _ = hidden.shape
    check_shape(
        got,
        (batch, tokens, len(table)),
        "B T V",
        mistakes={
            "column-lost": ((batch, tokens, len(table) - 1), "the padding row's column is gone; ids would shift by one")
        },
    )


def values(session: GradingSession) -> None:
    """the values are those of the plain product"""
    hidden, table, pad = draw(session)
    want = hidden @ table.T
    zeroed, masked = want.clone(), want.clone()
    zeroed[..., pad] = 0
    masked[..., pad] = float("-inf")
    lowest = want.clone()
    lowest[..., pad] = torch.finfo(want.dtype).min
    hidden_by_mask = "the padding row's logit is pushed down so that it is never chosen; its value is to stay"
    check_values(
        session.call(hidden, table, pad),
        want,
        mistakes={
            "column-zeroed": (zeroed, "the padding row's logit is set to 0; only what flows back is to change"),
            "column-masked": (masked, hidden_by_mask),
            "column-lowest": (lowest, hidden_by_mask),
        },
        message="the logits are not the plain product of hidden states and rows",
        atol=1e-4,
    )


def table_stays(session: GradingSession) -> None:
    """the table is not changed"""
    hidden, table, pad = draw(session)
    answer = session.try_call(hidden, table, pad, return_arguments=True)
    value_of(answer)
    if not torch.equal(answer.tensor_arguments[1], table):
        raise CheckFailed(
            "table-edited", "the table that was handed over was changed in place; it belongs to the caller"
        )


def gradient(session: GradingSession) -> None:
    """the table's gradient is the product's, without the padding row"""
    hidden, table, pad = draw(session)
    weight = session.random_normal(*hidden.shape[:2], len(table))
    got = session.gradient(hidden, table, pad, of=1, weight=weight)
    if got is None:
        raise CheckFailed("all-detached", "no gradient reaches the table at all; all rows but one are to learn")
    whole = weight.flatten(0, 1).T @ hidden.flatten(0, 1)
    want, channel, only_padding = whole.clone(), whole.clone(), torch.zeros_like(whole)
    want[pad] = 0
    channel[:, pad] = 0
    only_padding[pad] = whole[pad]
    row_zero = whole.clone()
    row_zero[0] = 0
    check_values(
        got,
        want,
        mistakes={
            "padding-learns": (whole, "the padding row has a gradient: the head still reaches it"),
            "channel-frozen": (channel, "a channel of all rows is cut off, not a row"),
            "only-padding-learns": (
                only_padding,
                "it is the wrong way round: the padding row learns and no other does",
            ),
            "row-zero": (row_zero, "row 0 is taken for the padding row, whatever padding_idx says"),
            "all-detached": (torch.zeros_like(whole), "no row learns; all but one are to"),
        },
        rule="gradient",
        message="the table's gradient is not that of the plain product without the padding row",
        atol=1e-4,
    )


def hidden_gradient(session: GradingSession) -> None:
    """the gradient of the hidden states is the product's"""
    hidden, table, pad = draw(session)
    weight = session.random_normal(*hidden.shape[:2], len(table))
    got = session.gradient(hidden, table, pad, of=0, weight=weight)
    if got is None:
        raise CheckFailed(
            "hidden-detached", "no gradient reaches the hidden states; the blocks before the head would not learn"
        )
    whole = weight @ table
    check_values(
        got,
        whole,
        mistakes={
            "column-detached": (
                whole - weight[..., pad, None] * table[pad],
                "the padding row's column sends nothing to the hidden states; only the row itself is to be cut off",
            )
        },
        rule="hidden-gradient",
        message="the gradient of the hidden states is not that of the plain product",
        atol=1e-4,
    )


CHECKS = (shape, values, table_stays, gradient, hidden_gradient)
