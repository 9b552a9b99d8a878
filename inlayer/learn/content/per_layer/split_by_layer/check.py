"""Checks for the task "One vector per block"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "split_by_layer"
PARAMETERS = ("ids", "table", "embeds", "projection", "layers")
FORBIDDEN = ("inlayer",)

CLOSE = 1e-4
Drawn = tuple[Tensor, Tensor, Tensor, Tensor, int]


def draw(session: GradingSession) -> Drawn:
    """Return arguments whose sizes all differ. No input vector is small: only `small_vectors` is about those."""
    batch, length, layers, width = 2, session.random_int(4, 5), session.random_int(6, 8), session.random_int(9, 12)
    table = session.random_normal(session.random_int(20, 30), layers * width)
    projection = (
        session.random_normal(layers * width, 3) * torch.arange(1.0, 1 + layers).repeat_interleave(width)[:, None]
    )
    ids = session.random_ids(len(table), (batch, length))
    return ids, table, normalized(session.random_normal(batch, length, 3)), projection, layers


def parts(drawn: Drawn) -> tuple[Tensor, Tensor]:
    """Return the rows and the projected input vectors, both split but neither scaled nor normalized."""
    ids, table, embeds, projection, layers = drawn
    return table[ids].view(*ids.shape, layers, -1), (embeds @ projection.T).view(*ids.shape, layers, -1)


def normalized(x: Tensor, axes: tuple[int, ...] = (-1,)) -> Tensor:
    return x / (x.pow(2).mean(axes, keepdim=True) + 1e-6).sqrt()


def expected(drawn: Drawn) -> Tensor:
    rows, x = parts(drawn)
    vectors: Tensor = (rows * rows.shape[-1] ** 0.5 + normalized(x)) / 2**0.5
    return vectors


def shape(session: GradingSession) -> None:
    """returns one vector per token and block"""
    drawn = draw(session)
    *_, layers = drawn
    batch, length, _, width = expected(drawn).shape
    check_shape(
        session.call(*drawn),
        (batch, length, layers, width),
        "B T L P",
        mistakes={
            "not-split": ((batch, length, layers * width), "the vectors of all blocks are still one row; split it"),
            "layers-first": ((layers, batch, length, width), "the blocks are the first axis; they come after T"),
            "channels-first": ((batch, length, width, layers), "the last two axes are swapped"),
        },
    )


def values(session: GradingSession) -> None:
    """adds the scaled row and the normalized projection"""
    drawn = draw(session)
    rows, x = parts(drawn)
    width, layers = rows.shape[-1], rows.shape[-2]
    token, context, half = rows * width**0.5, normalized(x), 2**0.5
    apart = (part.reshape(*part.shape[:2], width, layers).transpose(2, 3) for part in (rows, x))
    other_token, other_context = next(apart) * width**0.5, normalized(next(apart))
    check_values(
        session.call(*drawn),
        (token + context) / half,
        mistakes={
            "row-not-scaled": ((rows + context) / half, "the rows are not scaled; multiply them by √P"),
            "row-width-scale": (
                (rows * (width * layers) ** 0.5 + context) / half,
                "you scaled by the width of the whole row; P is the width of one vector",
            ),
            "input-width-scale": (
                (rows * drawn[2].shape[-1] ** 0.5 + context) / half,
                "you scaled by √D, the width of the input vectors; use √P",
            ),
            "norm-over-row": (
                (token + normalized(x, (-2, -1))) / half,
                "the mean is taken over all blocks; normalize the vector of each block alone",
            ),
            "not-normalized": ((token + x) / half, "the projected vectors are not normalized"),
            "length-one": (
                (token + context / width**0.5) / half,
                "you divided by the norm of the vector; divide by its root mean square",
            ),
            "channel-by-channel": (
                (other_token + other_context) / half,
                "you split the row channel by channel; a row holds all of one block's vector before the next block's",
            ),
            "sum-not-scaled": (token + context, "the sum is not divided by √2"),
            "averaged": ((token + context) / 2, "you divided the sum by 2; divide it by √2"),
            "no-context": (token, "the context part is missing"),
            "no-token": (context, "the token part is missing"),
        },
        message="the vectors do not match the formula",
        atol=CLOSE,
    )


def small_vectors(session: GradingSession) -> None:
    """normalizes input vectors that are zero or very small"""
    ids, table, embeds, projection, layers = draw(session)
    drawn = ids, table, embeds * torch.tensor([0.0, 1e-4])[:, None, None], projection, layers
    rows, x = parts(drawn)
    token, root = rows * rows.shape[-1] ** 0.5, x.pow(2).mean(-1, keepdim=True).sqrt()
    check_values(
        session.call(*drawn),
        expected(drawn),
        mistakes={
            "no-epsilon": (
                (token + x / root) / 2**0.5,
                "0.000001 is missing in the norm; without it, an input vector of zeros becomes NaN",
            ),
            "epsilon-outside": (
                (token + x / (root + 1e-6)) / 2**0.5,
                "0.000001 is added after the square root; add it to the mean",
            ),
        },
        message="the vectors of small inputs do not match the formula",
        atol=CLOSE,
    )


def gradient(session: GradingSession) -> None:
    """trains the table and the projection"""
    drawn = draw(session)
    weight = session.random_normal(*expected(drawn).shape)
    for position, name in ((1, "table"), (3, "projection")):
        got = session.gradient(*drawn, of=position, weight=weight)
        if got is None:
            raise CheckFailed("no-gradient", f"no gradient reaches the {name}; it was detached or copied")
        ids, table, embeds, projection, layers = drawn
        table, projection = table.clone().requires_grad_(), projection.clone().requires_grad_()
        loss = (expected((ids, table, embeds, projection, layers)) * weight).sum()
        want = torch.autograd.grad(loss, (table, projection))[position // 2]
        check_values(got, want, rule="gradient", message=f"the gradient of the {name} is wrong", atol=1e-3)


CHECKS = (shape, values, small_vectors, gradient)
