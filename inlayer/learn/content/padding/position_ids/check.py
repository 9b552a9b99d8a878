"""Checks of "Which token is the first"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import same_dtype, same_shape, same_values
from inlayer.learn.session import Exam

NAME = "position_ids"
PARAMETERS = ("mask",)


def shape(exam: Exam) -> None:
    """one whole number for every place"""
    mask = padded_left(exam)
    got = exam.call(mask)
    same_shape(got, tuple(mask.shape), "B T")
    same_dtype(got, torch.int64)


def left(exam: Exam) -> None:
    """padding on the left: each text starts at 0"""
    mask = padded_left(exam)
    want = counted(mask)
    same_values(
        exam.call(mask),
        want,
        wrong={
            "counts-places": (
                torch.arange(mask.shape[1]).expand(mask.shape),
                "the places of the rectangle are numbered; a text with padding in front starts late",
            ),
            "counts-places-padding-zero": (
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


def right(exam: Exam) -> None:
    """padding on the right gets 0"""
    mask = padded_left(exam).flip(1)
    want = counted(mask)
    same_values(
        exam.call(mask),
        want,
        wrong={
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


def anywhere(exam: Exam) -> None:
    """padding in the middle is not counted"""
    mask = torch.rand(exam.number(3, 5), exam.number(7, 9), generator=exam.random) < 0.6
    mask[0, :4] = torch.tensor([False, True, False, True])
    first = mask.int().argmax(1, keepdim=True)
    same_values(
        exam.call(mask),
        counted(mask),
        wrong={
            "gap-counts": (
                (torch.arange(mask.shape[1]) - first).where(mask, 0),
                "padding in front is left out, padding between two real tokens is counted",
            )
        },
        message="the real tokens are not numbered in their order when padding stands between them",
    )


def no_tokens(exam: Exam) -> None:
    """a text without tokens gets zeros"""
    mask = padded_left(exam)
    mask[exam.number(0, len(mask) - 1)] = False
    same_values(exam.call(mask), counted(mask), message="a text of nothing but padding is not numbered 0 throughout")


def more_padding(exam: Exam) -> None:
    """more padding on the left changes no real token's number"""
    mask, extra = padded_left(exam), exam.number(1, 5)
    wider = torch.cat((torch.zeros(len(mask), extra, dtype=torch.bool), mask), dim=1)
    got = exam.call(wider)
    same_shape(got, tuple(wider.shape), "B T")
    same_values(
        got[:, extra:],
        counted(mask),
        rule="depends-on-padding",
        message="with more padding on the left, the tokens of the same texts get other numbers",
    )


CHECKS = (shape, left, right, anywhere, no_tokens, more_padding)


def own(exam: Exam) -> Tensor:
    """The walk's sentence of four tokens, beside one of two, padded on the left."""
    got: Tensor = exam.call(torch.tensor([[True, True, True, True], [False, False, True, True]]))
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


def padded_left(exam: Exam) -> Tensor:
    """A mask of texts of different lengths, at least one of them padded and none empty."""
    length = exam.number(5, 8)
    counts = torch.tensor(
        [length, exam.number(2, length - 2), *(exam.number(2, length) for _ in range(exam.number(1, 3)))]
    )
    counts = counts[torch.randperm(len(counts), generator=exam.random)]
    return torch.arange(length) >= length - counts[:, None]
