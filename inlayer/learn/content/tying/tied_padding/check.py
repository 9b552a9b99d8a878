"""Checks for the task "Keep a tied padding row at zero"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession, value_of

NAME = "tied_padding"
PARAMETERS = ("hidden", "table", "padding_idx")
FORBIDDEN = ("inlayer",)


def draw(session: GradingSession) -> tuple[Tensor, Tensor, int]:
    """Return hidden states, a table with a nonzero padding row, and its id; all sizes differ."""
    rows, width = session.random_int(10, 13), session.random_int(6, 8)
    return (
        session.random_normal(2, session.random_int(3, 4), width),
        session.random_normal(rows, width),
        session.random_int(1, width - 1),
    )


def shape(session: GradingSession) -> None:
    """returns one logit per row, including the padding row"""
    hidden, table, pad = draw(session)
    got = session.call(hidden, table, pad)
    batch, tokens, _ = hidden.shape
    check_shape(
        got,
        (batch, tokens, len(table)),
        "B T V",
        mistakes={
            "column-lost": (
                (batch, tokens, len(table) - 1),
                "the padding row's column is missing, which would shift the ids by one",
            )
        },
    )


def values(session: GradingSession) -> None:
    """returns the values of the plain product"""
    hidden, table, pad = draw(session)
    want = hidden @ table.T
    zeroed, masked = want.clone(), want.clone()
    zeroed[..., pad] = 0
    masked[..., pad] = float("-inf")
    lowest = want.clone()
    lowest[..., pad] = torch.finfo(want.dtype).min
    hidden_by_mask = "you pushed the padding row's logit down so that it is never chosen; keep its value"
    check_values(
        session.call(hidden, table, pad),
        want,
        mistakes={
            "column-zeroed": (zeroed, "you set the padding row's logit to 0; change only the backward pass"),
            "column-masked": (masked, hidden_by_mask),
            "column-lowest": (lowest, hidden_by_mask),
        },
        message="the logits are not the plain product of hidden states and rows",
        atol=1e-4,
    )


def table_stays(session: GradingSession) -> None:
    """does not modify the table"""
    hidden, table, pad = draw(session)
    answer = session.try_call(hidden, table, pad)
    value_of(answer)
    if not torch.equal(answer.tensor_arguments[1], table):
        raise CheckFailed("table-edited", "you modified the table in place; it belongs to the caller")


def gradient(session: GradingSession) -> None:
    """gives the table the product's gradient, except for the padding row"""
    hidden, table, pad = draw(session)
    weight = session.random_normal(*hidden.shape[:2], len(table))
    got = session.gradient(hidden, table, pad, of=1, weight=weight)
    if got is None:
        raise CheckFailed("all-detached", "no gradient reaches the table at all; all rows but one must be trained")
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
            "channel-frozen": (channel, "you cut off one channel of all rows instead of one row"),
            "only-padding-learns": (
                only_padding,
                "it is the wrong way around: only the padding row is trained",
            ),
            "row-zero": (row_zero, "you treated row 0 as the padding row; use padding_idx"),
            "all-detached": (torch.zeros_like(whole), "no row is trained; all but one must be"),
        },
        rule="gradient",
        message="the table's gradient must be that of the plain product, except for the padding row",
        atol=1e-4,
    )


def hidden_gradient(session: GradingSession) -> None:
    """gives the hidden states the gradient of the product"""
    hidden, table, pad = draw(session)
    weight = session.random_normal(*hidden.shape[:2], len(table))
    got = session.gradient(hidden, table, pad, of=0, weight=weight)
    if got is None:
        raise CheckFailed(
            "hidden-detached",
            "no gradient reaches the hidden states, so the blocks before the head would not be trained",
        )
    whole = weight @ table
    check_values(
        got,
        whole,
        mistakes={
            "column-detached": (
                whole - weight[..., pad, None] * table[pad],
                "the padding row's column sends nothing to the hidden states; cut off only the row itself",
            )
        },
        rule="hidden-gradient",
        message="the gradient of the hidden states is not that of the plain product",
        atol=1e-4,
    )


CHECKS = (shape, values, table_stays, gradient, hidden_gradient)
