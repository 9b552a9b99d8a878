"""Checks for the task "Position ids for padded batches"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.session import GradingSession

NAME = "position_ids"
PARAMETERS = ("mask",)


def shape(session: GradingSession) -> None:
    """returns one integer per position"""
    mask = padded_left(session)
    got = session.call(mask)
    check_shape(got, tuple(mask.shape), "B T")
    check_dtype(got, torch.int64)


def left(session: GradingSession) -> None:
    """starts each left-padded text at 0"""
    mask = padded_left(session)
    want = counted(mask)
    check_values(
        session.call(mask),
        want,
        mistakes={
            "counts-padding": (
                torch.arange(mask.shape[1]).expand(mask.shape),
                "you numbered all columns, including padding; a text with padding in front starts too late",
            ),
            "counts-padding-as-zero": (
                torch.arange(mask.shape[1]).expand(mask.shape).where(mask, 0),
                "padding gets 0, but the tokens are still numbered by column",
            ),
            "starts-at-one": ((want + 1).where(mask, 0), "the first real token has position 1; positions start at 0"),
            "negative-padding": (
                mask.cumsum(1) - 1,
                "padding in front of a text has position -1; no position table has such a row",
            ),
            "wrong-axis": (
                (mask.cumsum(0) - 1).where(mask, 0),
                "you counted the texts of the batch, not the tokens of a text",
            ),
        },
        message="the real tokens of a left-padded text must be numbered 0, 1, 2, ...",
    )


def right(session: GradingSession) -> None:
    """gives padding on the right position 0"""
    mask = padded_left(session).flip(1)
    want = counted(mask)
    check_values(
        session.call(mask),
        want,
        mistakes={
            "padding-keeps-last": (
                mask.cumsum(1) - 1,
                "padding after a text repeats the position of the last token; padding gets 0 everywhere",
            ),
            "padding-counts-on": (
                torch.arange(mask.shape[1]).expand(mask.shape),
                "padding after a text is counted; padding gets 0 everywhere",
            ),
        },
        message="a right-padded text must be numbered 0, 1, 2, ..., with 0 for padding",
    )


def anywhere(session: GradingSession) -> None:
    """does not count padding in the middle"""
    mask = torch.rand(session.random_int(3, 5), session.random_int(7, 9), generator=session.generator) < 0.6
    mask[0, :4] = torch.tensor([False, True, False, True])
    first = mask.int().argmax(1, keepdim=True)
    check_values(
        session.call(mask),
        counted(mask),
        mistakes={
            "gap-counts": (
                (torch.arange(mask.shape[1]) - first).where(mask, 0),
                "you skip padding in front, but count padding between two real tokens",
            )
        },
        message="the real tokens must be numbered in order, even with padding between them",
    )


def no_tokens(session: GradingSession) -> None:
    """gives zeros to a text without tokens"""
    mask = padded_left(session)
    mask[session.random_int(0, len(mask) - 1)] = False
    check_values(session.call(mask), counted(mask), message="a text that is all padding must be all 0")


def more_padding(session: GradingSession) -> None:
    """gives the same positions with more padding on the left"""
    mask, extra = padded_left(session), session.random_int(1, 5)
    wider = torch.cat((torch.zeros(len(mask), extra, dtype=torch.bool), mask), dim=1)
    got = session.call(wider)
    check_shape(got, tuple(wider.shape), "B T")
    check_values(
        got[:, extra:],
        counted(mask),
        rule="depends-on-padding",
        message="with more padding on the left, the tokens of the same texts get different positions",
    )


CHECKS = (shape, left, right, anywhere, no_tokens, more_padding)


def walk_output(session: GradingSession) -> Tensor:
    """Return a mask for the walk's sentence of four tokens and one of two, padded on the left."""
    got: Tensor = session.call(torch.tensor([[True, True, True, True], [False, False, True, True]]))
    return got


def counted(mask: Tensor) -> Tensor:
    """Compute the positions with a plain loop."""
    numbers = torch.zeros(mask.shape, dtype=torch.int64)
    for b, row in enumerate(mask.tolist()):
        position = 0
        for t, real in enumerate(row):
            if real:
                numbers[b, t] = position
                position += 1
    return numbers


def padded_left(session: GradingSession) -> Tensor:
    """Return a mask for texts of different lengths, at least one of them padded and none empty."""
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
