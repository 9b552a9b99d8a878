"""Checks of "Which token is the first"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import check_dtype, check_shape, check_values
from inlayer.learn.session import GradingSession

NAME = "position_ids"
PARAMETERS = ("mask",)


def shape(session: GradingSession) -> None:
    """one whole number for every place"""
    mask = padded_left(session)
    got = session.call(mask)
    check_shape(got, tuple(mask.shape), "B T")
    check_dtype(got, torch.int64)


def left(session: GradingSession) -> None:
    """padding on the left: each text starts at 0"""
    mask = padded_left(session)
    want = counted(mask)
    check_values(
        session.call(mask),
        want,
        mistakes={
            "counts-padding": (
                torch.arange(mask.shape[1]).expand(mask.shape),
                "the places of the rectangle are numbered; a text with padding in front starts late",
            ),
            "counts-padding-as-zero": (
                torch.arange(mask.shape[1]).expand(mask.shape).where(mask, 0),
                "padding gets 0, but the tokens are still numbered by their place in the rectangle",
            ),
            "starts-at-one": ((want + 1).where(mask, 0), "the first real token has number 1; positions start at 0"),
            "negative-padding": (
                mask.cumsum(1) - 1,
                "padding in front of a text has number -1; no table of positions has a row for it",
            ),
            "wrong-axis": (
                (mask.cumsum(0) - 1).where(mask, 0),
                "the numbers count the texts of the batch, not the tokens of a text",
            ),
        },
        message="the real tokens of a left-padded text are not numbered 0, 1, 2, ...",
    )


def right(session: GradingSession) -> None:
    """padding on the right gets 0"""
    mask = padded_left(session).flip(1)
    want = counted(mask)
    check_values(
        session.call(mask),
        want,
        mistakes={
            "padding-keeps-last": (
                mask.cumsum(1) - 1,
                "padding after a text repeats the number of its last token; padding gets 0, wherever it stands",
            ),
            "padding-counts-on": (
                torch.arange(mask.shape[1]).expand(mask.shape),
                "padding after a text is numbered on; padding gets 0, wherever it stands",
            ),
        },
        message="the numbers of a right-padded text are not 0, 1, 2, ... and 0 for padding",
    )


def anywhere(session: GradingSession) -> None:
    """padding in the middle is not counted"""
    mask = torch.rand(session.random_int(3, 5), session.random_int(7, 9), generator=session.generator) < 0.6
    mask[0, :4] = torch.tensor([False, True, False, True])
    first = mask.int().argmax(1, keepdim=True)
    check_values(
        session.call(mask),
        counted(mask),
        mistakes={
            "gap-counts": (
                (torch.arange(mask.shape[1]) - first).where(mask, 0),
                "padding in front is left out, padding between two real tokens is counted",
            )
        },
        message="the real tokens are not numbered in their order when padding stands between them",
    )


def no_tokens(session: GradingSession) -> None:
    """a text without tokens gets zeros"""
    mask = padded_left(session)
    mask[session.random_int(0, len(mask) - 1)] = False
    check_values(
        session.call(mask), counted(mask), message="a text of nothing but padding is not numbered 0 throughout"
    )


def more_padding(session: GradingSession) -> None:
    """more padding on the left changes no real token's number"""
    mask, extra = padded_left(session), session.random_int(1, 5)
    wider = torch.cat((torch.zeros(len(mask), extra, dtype=torch.bool), mask), dim=1)
    got = session.call(wider)
    check_shape(got, tuple(wider.shape), "B T")
    check_values(
        got[:, extra:],
        counted(mask),
        rule="depends-on-padding",
        message="with more padding on the left, the tokens of the same texts get other numbers",
    )


CHECKS = (shape, left, right, anywhere, no_tokens, more_padding)


def walk_output(session: GradingSession) -> Tensor:
    """The walk's sentence of four tokens, beside one of two, padded on the left."""
    got: Tensor = session.call(torch.tensor([[True, True, True, True], [False, False, True, True]]))
    return got


def counted(mask: Tensor) -> Tensor:
    """The numbers, by a plain loop."""
    numbers = torch.zeros(mask.shape, dtype=torch.int64)
    for b, row in enumerate(mask.tolist()):
        position = 0
        for t, real in enumerate(row):
            if real:
                numbers[b, t] = position
                position += 1
    return numbers


def padded_left(session: GradingSession) -> Tensor:
    """A mask of texts of different lengths, at least one of them padded and none empty."""
    length = session.random_int(5, 8)
    counts = torch.tensor(
        [
            length,
            session.random_int(2, length - 2),
            *(session.random_int(2, length) for _ in range(session.random_int(1, 3))),
        ]
    )
    counts = counts[torch.randperm(len(counts), generator=session.generator)]
    return torch.arange(length) >= length - counts[:, None]
