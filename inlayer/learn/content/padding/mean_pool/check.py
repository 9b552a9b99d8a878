"""Checks for the task "Mean pooling"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "mean_pool"
PARAMETERS = ("hidden", "mask")
FORBIDDEN = ("inlayer",)

CLOSE = 1e-5


def shape(session: GradingSession) -> None:
    """returns one vector per text"""
    hidden, mask = draw(session)
    batch, length, width = hidden.shape
    check_shape(
        session.call(hidden, mask),
        (batch, width),
        "B D",
        mistakes={
            "wrong-axis": ((length, width), "you averaged over the texts; average over the tokens of each text"),
            "axis-kept": ((batch, 1, width), "the token axis is still there, with size 1; remove it"),
            "channels-gone": ((batch, length), "you averaged over the channels; average over the tokens"),
        },
    )


def values(session: GradingSession) -> None:
    """averages the real tokens, wherever the padding is"""
    hidden, mask = draw(session)
    kept = hidden.where(mask[..., None], 0)
    count = mask.sum(1, keepdim=True)
    first = torch.stack([rows[: int(n)].mean(0) for rows, n in zip(hidden, count, strict=True)])
    check_values(
        session.call(hidden, mask),
        kept.sum(1) / count,
        mistakes={
            "sum-not-mean": (kept.sum(1), "this is the sum of the real tokens; divide it to get a mean"),
            "divides-by-all": (kept.mean(1), "the sum is divided by the number of positions, including padding"),
            "mask-ignored": (hidden.mean(1), "padding is part of the sum and the count: you did not use the mask"),
            "first-positions": (
                first,
                "you took the right number of tokens, but from the start of each text; the mask also "
                "shows where they are",
            ),
        },
        message="the values are not the mean over the real positions",
        atol=CLOSE,
    )


def gradient(session: GradingSession) -> None:
    """lets the gradient reach every real token and no padding"""
    hidden, mask = draw(session)
    weight = session.random_normal(hidden.shape[0], hidden.shape[2])
    got = session.gradient(hidden, mask, of=0, weight=weight)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches the hidden states: the result is detached from them")
    share = weight / mask.sum(1, keepdim=True)
    check_values(
        got,
        share[:, None].where(mask[..., None], 0),
        rule="gradient",
        message="the gradient must be distributed evenly among the real tokens, with none for padding",
        atol=CLOSE,
    )


def kinds(session: GradingSession) -> None:
    """accepts a bool, int64, or float32 mask"""
    hidden, mask = draw(session)
    want = hidden.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True)
    for dtype in (torch.int64, torch.float32):
        answer = session.try_call(hidden, mask.to(dtype))
        if answer.raised is not None:
            raise CheckFailed(
                "mask-kind", f"with a mask of {dtype} your code raised {answer.raised.type}: {answer.raised.message}"
            )
        check_values(
            answer.value,
            want,
            rule="mask-kind",
            message=f"a mask of {dtype} with the same values gives a different result from a bool mask",
            atol=CLOSE,
        )


def all_padding(session: GradingSession) -> None:
    """returns zeros for a text without tokens"""
    hidden, mask = draw(session)
    row = session.random_int(0, len(mask) - 1)
    mask[row] = False
    got = session.call(hidden, mask)
    check_shape(got, (len(hidden), hidden.shape[2]), "B D")
    if bool(got[row].isnan().any()) or bool(got[row].isinf().any()):
        raise CheckFailed("divides-by-zero", f"text {row} has no real token, and its vector is NaN: 0 was divided by 0")
    if bool(got[row].any()):
        raise CheckFailed("not-zeros", f"text {row} has no real token, but its vector is not all zeros")
    want = hidden.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    check_values(got, want, message="a text without tokens changes the means of the other texts", atol=CLOSE)


def leaks(session: GradingSession) -> None:
    """ignores the values at padded positions, even NaN"""
    hidden, mask = draw(session)
    want = hidden.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True)
    for junk in (float("nan"), float("inf")):
        got = session.call(hidden.where(mask[..., None], junk), mask)
        check_shape(got, tuple(want.shape), "B D")
        if bool(got.isnan().any()) or bool(got.isinf().any()):
            raise CheckFailed("nan-leaks", f"padded positions contained {junk}, and it leaked into the mean")
        check_values(got, want, message="the means depend on the values at padded positions", atol=CLOSE)


CHECKS = (shape, values, gradient, kinds, all_padding, leaks)


def walk_output(session: GradingSession) -> Tensor:
    """Return the mean of the walk's own hidden states, followed by two positions of padding."""
    table, ids = sample()
    hidden = torch.cat((table[ids], torch.zeros(1, 2, table.shape[1])), dim=1)
    got: Tensor = session.call(hidden, torch.tensor([[True, True, True, True, False, False]]))
    return got


def draw(session: GradingSession) -> tuple[Tensor, Tensor]:
    """Return nonzero hidden states and a mask; the last text has padding in the middle."""
    batch, length, width = session.random_int(2, 4), session.random_int(5, 7), session.random_int(8, 10)
    mask = torch.rand(batch, length, generator=session.generator) < 0.5
    mask[:, 0] = False  # so that every text has padding, and the first positions are not the real ones
    mask[torch.arange(batch), session.random_ids(length, (batch,), low=1)] = True
    mask[-1] = torch.ones(length, dtype=torch.bool)
    mask[-1, session.random_int(1, length - 3)] = False
    return session.random_normal(batch, length, width), mask
