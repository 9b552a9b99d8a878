"""Checks of "Waves for places"."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlayer.learn.checks import check_dtype, check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession
from inlayer.positions import sinusoidal_encoding as waves_of

NAME = "sinusoidal_encoding"
PARAMETERS = ("positions", "n_embd")
FORBIDDEN_NAMES = ("inlayer",)

CLOSE = 2e-3  # float32 angles of the learner's against ours, at positions of a few hundred


def shape(session: GradingSession) -> None:
    """n_embd channels for every position"""
    length, width = session.random_int(3, 6), 2 * session.random_int(4, 8)
    got = session.call(torch.arange(length), width)
    check_shape(got, (length, width), "T D", mistakes={"swapped-sizes": ((width, length), "the two axes are swapped")})
    check_dtype(got, torch.float32)


def values(session: GradingSession) -> None:
    """sine and cosine of every pair, side by side"""
    length, width = session.random_int(20, 30), 2 * session.random_int(4, 8)
    positions = torch.arange(length)
    got, want = session.call(positions, width), waves_of(positions, width)
    pair = torch.arange(width // 2)
    alone = positions[:, None] / 10_000 ** (torch.arange(width) / width)
    mixed = alone.sin()
    mixed[:, 1::2] = alone.cos()[:, 1::2]
    check_values(
        got,
        want,
        mistakes={
            "concatenated": (
                waves_of(positions, width, layout="half"),
                "all sines come first, then all cosines; here the two of a pair stand side by side",
            ),
            "cosine-first": (
                torch.stack((want[:, 1::2], want[:, 0::2]), dim=-1).flatten(1),
                "even channels hold cosines and odd ones sines; it is the other way round",
            ),
            "exponent-not-doubled": (
                interleave(positions[:, None] / 10_000 ** (pair / width)),
                "neighboring pairs differ too little in speed: look at the exponent again, for i = 1",
            ),
            "one-frequency-per-channel": (
                mixed,
                "the sine and the cosine beside it turn at different speeds; the two of a pair share one angle",
            ),
            "multiplied": (
                interleave(positions[:, None] * 10_000 ** (2 * pair / width)),
                "the encoding get faster from pair to pair; the position is divided by the power",
            ),
            "off-by-one": (waves_of(positions + 1, width), "these are the encoding of the positions one further"),
        },
        message="the encoding are not those of the formula",
        atol=CLOSE,
    )


def any_positions(session: GradingSession) -> None:
    """positions in any order, and far out"""
    positions, width = session.random_ids(700, (session.random_int(5, 9),), low=10), 2 * session.random_int(4, 8)
    positions[1] = positions[0]
    counted = torch.arange(len(positions))
    check_values(
        session.call(positions, width),
        waves_of(positions, width),
        mistakes={
            "ignores-positions": (
                waves_of(counted, width),
                "the encoding are those of 0, 1, 2, ...; the positions given were others, and not in order",
            )
        },
        message="the encoding at positions that are not 0, 1, 2, ... differ",
        atol=CLOSE,
    )


def odd(session: GradingSession) -> None:
    """an odd width: the last sine stands alone"""
    positions, width = torch.arange(session.random_int(4, 9)), 2 * session.random_int(2, 7) + 1
    answer = session.try_call(positions, width)
    if answer.raised is not None:
        raise CheckFailed("odd-width", f"with n_embd = {width} it raised {answer.raised}")
    if isinstance(answer.value, Tensor) and answer.value.shape != (len(positions), width):
        raise CheckFailed("odd-width", f"n_embd = {width} gave a shape of {tuple(answer.value.shape)}")
    even = torch.arange(0, width, 2)
    rounded = positions[:, None] / 10_000 ** (even / (width + 1))
    check_values(
        answer.value,
        waves_of(positions, width),
        mistakes={
            "width-rounded-up": (
                interleave(rounded)[:, :width],
                "the exponent divides by the next even number; D is the width that was asked for, odd or not",
            )
        },
        message=f"with the odd width {width} the encoding are not those of the formula",
        atol=CLOSE,
    )


def a_step_is_a_turn(session: GradingSession) -> None:
    """a step of k tokens turns every pair by the same angle, wherever it starts"""
    width, step = 2 * session.random_int(3, 6), session.random_int(1, 9)
    start = session.random_ids(300, (2,))
    got = session.call(torch.cat((start, start + step)), width)
    check_shape(got, (4, width), "T D")
    hands = torch.complex(got[:, 1::2].double(), got[:, 0::2].double())
    turned = hands[2:] / hands[:2]
    if float((turned[0] - turned[1]).abs().max()) > math.sqrt(CLOSE):
        raise CheckFailed("not-a-turn", f"from p to p + {step} the pairs turn by different angles, depending on p")


CHECKS = (shape, values, any_positions, odd, a_step_is_a_turn)


def walk_output(session: GradingSession) -> Tensor:
    """The encoding of the four tokens of the walk's sentence, as wide as one of the sample's heads."""
    got: Tensor = session.call(torch.arange(4), 32)
    return got


def interleave(angles: Tensor) -> Tensor:
    """Sine and cosine of each angle, side by side."""
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
