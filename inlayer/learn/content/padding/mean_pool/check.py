"""Checks of "One vector a text"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.checks import same_shape, same_values
from inlayer.learn.content.forward.sample import sample
from inlayer.learn.session import Exam, Failed

NAME = "mean_pool"
PARAMETERS = ("hidden", "mask")
WITHOUT = ("inlayer",)

CLOSE = 1e-5


def shape(exam: Exam) -> None:
    """one vector a text"""
    hidden, mask = draw(exam)
    batch, length, width = hidden.shape
    same_shape(
        exam.call(hidden, mask),
        (batch, width),
        "B D",
        wrong={"wrong-axis": (length, width), "axis-kept": (batch, 1, width), "channels-gone": (batch, length)},
    )


def values(exam: Exam) -> None:
    """the mean of the real tokens, wherever padding stands"""
    hidden, mask = draw(exam)
    kept = hidden.where(mask[..., None], 0)
    count = mask.sum(1, keepdim=True)
    first = torch.stack([rows[: int(n)].mean(0) for rows, n in zip(hidden, count, strict=True)])
    same_values(
        exam.call(hidden, mask),
        kept.sum(1) / count,
        wrong={
            "sum-not-mean": (kept.sum(1), "this is the sum of the real tokens; a mean is also divided"),
            "divides-by-all": (kept.mean(1), "the sum is divided by the number of places, padding included"),
            "mask-ignored": (hidden.mean(1), "padded places enter the sum and the count: the mask is not used"),
            "first-places": (
                first,
                "the right number of tokens is taken, but from the beginning of each text; the mask also says where",
            ),
        },
        message="the values are not the mean over the places the mask calls real",
        atol=CLOSE,
    )


def gradient(exam: Exam) -> None:
    """the gradient reaches each real token, and no padding"""
    hidden, mask = draw(exam)
    weight = exam.normal(hidden.shape[0], hidden.shape[2])
    got = exam.gradient(hidden, mask, of=0, weight=weight)
    if got is None:
        raise Failed("no-gradient", "no gradient reaches the hidden states: the result is cut off from them")
    share = weight / mask.sum(1, keepdim=True)
    same_values(
        got,
        share[:, None].where(mask[..., None], 0),
        rule="gradient",
        message="the gradient is not shared out evenly among the real tokens, with none for padding",
        atol=CLOSE,
    )


def kinds(exam: Exam) -> None:
    """the mask may be bool, int64 or float32"""
    hidden, mask = draw(exam)
    want = hidden.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True)
    for dtype in (torch.int64, torch.float32):
        answer = exam.run(hidden, mask.to(dtype))
        if answer.raised is not None:
            raise Failed("mask-kind", f"with a mask of {dtype} it raised {answer.raised.type}: {answer.raised.message}")
        same_values(
            answer.value,
            want,
            rule="mask-kind",
            message=f"a mask of {dtype} with the same 1 and 0 gives another result than one of bool",
            atol=CLOSE,
        )


def all_padding(exam: Exam) -> None:
    """a text without tokens gives zeros"""
    hidden, mask = draw(exam)
    row = exam.number(0, len(mask) - 1)
    mask[row] = False
    got = exam.call(hidden, mask)
    same_shape(got, (len(hidden), hidden.shape[2]), "B D")
    if bool(got[row].isnan().any()) or bool(got[row].isinf().any()):
        raise Failed(
            "divides-by-zero", f"text {row} has no real token, and its vector is not a number: 0 was divided by 0"
        )
    if bool(got[row].any()):
        raise Failed("not-zeros", f"text {row} has no real token, but its vector is not all zeros")
    want = hidden.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
    same_values(got, want, message="beside a text without tokens, the other texts have other means", atol=CLOSE)


def leaks(exam: Exam) -> None:
    """what stands in a padded place does not matter, not even NaN"""
    hidden, mask = draw(exam)
    want = hidden.where(mask[..., None], 0).sum(1) / mask.sum(1, keepdim=True)
    for junk in (float("nan"), float("inf")):
        got = exam.call(hidden.where(mask[..., None], junk), mask)
        same_shape(got, tuple(want.shape), "B D")
        if bool(got.isnan().any()) or bool(got.isinf().any()):
            raise Failed("nan-leaks", f"padded places held {junk}, and it came through into the mean")
        same_values(got, want, message="the means depend on what stands in padded places", atol=CLOSE)


CHECKS = (shape, values, gradient, kinds, all_padding, leaks)


def own(exam: Exam) -> Tensor:
    """The mean of the walk's own hidden states, with two places of padding behind them."""
    table, ids = sample()
    hidden = torch.cat((table[ids], torch.zeros(1, 2, table.shape[1])), dim=1)
    got: Tensor = exam.call(hidden, torch.tensor([[True, True, True, True, False, False]]))
    return got


def draw(exam: Exam) -> tuple[Tensor, Tensor]:
    """Hidden states that are not zero where padding is, and a mask; the last text has padding in its middle."""
    batch, length, width = exam.number(2, 4), exam.number(5, 7), exam.number(8, 10)
    mask = torch.rand(batch, length, generator=exam.random) < 0.5
    mask[:, 0] = False  # so that every text has padding, and the first places are not the real ones
    mask[torch.arange(batch), exam.ids(length, (batch,), low=1)] = True
    mask[-1] = torch.ones(length, dtype=torch.bool)
    mask[-1, exam.number(1, length - 3)] = False
    return exam.normal(batch, length, width), mask
