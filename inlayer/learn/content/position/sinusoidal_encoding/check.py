"""Checks for the task "Compute a sinusoidal encoding"."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession
from inlayer.positions import sinusoidal_encoding as waves_of

NAME = "sinusoidal_encoding"
PARAMETERS = ("positions", "n_embd")
FORBIDDEN = ("inlayer",)

CLOSE = 2e-3  # tolerance between the learner's float32 angles and ours at positions of a few hundred


def shape(session: GradingSession) -> None:
    """returns n_embd channels per position"""
    length, width = session.random_int(3, 6), 2 * session.random_int(4, 8)
    got = session.call(torch.arange(length), width)
    check_shape(got, (length, width), "T D", mistakes={"swapped-sizes": ((width, length), "the two axes are swapped")})
    check_dtype(got, torch.float32)


def values(session: GradingSession) -> None:
    """interleaves the sine and cosine of every pair"""
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
                "all sines come first, then all cosines; place each sine next to its cosine",
            ),
            "cosine-first": (
                torch.stack((want[:, 1::2], want[:, 0::2]), dim=-1).flatten(1),
                "even channels contain cosines and odd ones sines; it must be the other way around",
            ),
            "exponent-not-doubled": (
                interleave(positions[:, None] / 10_000 ** (pair / width)),
                "the frequencies of neighboring pairs are too close; check the exponent for i = 1",
            ),
            "one-frequency-per-channel": (
                mixed,
                "a sine and the cosine next to it have different frequencies; a pair shares one angle",
            ),
            "multiplied": (
                interleave(positions[:, None] * 10_000 ** (2 * pair / width)),
                "the frequency grows from pair to pair; divide the position by the power",
            ),
            "off-by-one": (waves_of(positions + 1, width), "this is the encoding of the next positions"),
        },
        message="the encoding does not match the formula",
        atol=CLOSE,
    )


def any_positions(session: GradingSession) -> None:
    """handles positions in any order, including large ones"""
    positions, width = session.random_ids(700, (session.random_int(5, 9),), low=10), 2 * session.random_int(4, 8)
    positions[1] = positions[0]
    counted = torch.arange(len(positions))
    check_values(
        session.call(positions, width),
        waves_of(positions, width),
        mistakes={
            "ignores-positions": (
                waves_of(counted, width),
                "this is the encoding of 0, 1, 2, ...; use the given positions, which are in a different order",
            )
        },
        message="the encoding is wrong for positions other than 0, 1, 2, ...",
        atol=CLOSE,
    )


def odd(session: GradingSession) -> None:
    """handles odd widths, where the last sine has no cosine"""
    positions, width = torch.arange(session.random_int(4, 9)), 2 * session.random_int(2, 7) + 1
    answer = session.try_call(positions, width)
    if answer.raised is not None:
        raise CheckFailed("odd-width", f"with n_embd = {width} your code raised {answer.raised}")
    if isinstance(answer.value, Tensor) and answer.value.shape != (len(positions), width):
        raise CheckFailed("odd-width", f"n_embd = {width} gave the shape {tuple(answer.value.shape)}")
    even = torch.arange(0, width, 2)
    rounded = positions[:, None] / 10_000 ** (even / (width + 1))
    check_values(
        answer.value,
        waves_of(positions, width),
        mistakes={
            "width-rounded-up": (
                interleave(rounded)[:, :width],
                "the exponent divides by the next even number; D is the given width, odd or not",
            )
        },
        message=f"with the odd width {width} the encoding does not match the formula",
        atol=CLOSE,
    )


def shift_is_a_rotation(session: GradingSession) -> None:
    """rotates every pair by the same angle for a step of k tokens, wherever it starts"""
    width, step = 2 * session.random_int(3, 6), session.random_int(1, 9)
    start = session.random_ids(300, (2,))
    got = session.call(torch.cat((start, start + step)), width)
    check_shape(got, (4, width), "T D")
    hands = torch.complex(got[:, 1::2].double(), got[:, 0::2].double())
    rotations = hands[2:] / hands[:2]
    if float((rotations[0] - rotations[1]).abs().max()) > math.sqrt(CLOSE):
        raise CheckFailed(
            "not-a-rotation", f"from p to p + {step} the pairs rotate by different angles, depending on p"
        )


CHECKS = (shape, values, any_positions, odd, shift_is_a_rotation)


def walk_output(session: GradingSession) -> Tensor:
    """Return the encoding of the four tokens of the walk's sentence, as wide as one of the sample's heads."""
    got: Tensor = session.call(torch.arange(4), 32)
    return got


def interleave(angles: Tensor) -> Tensor:
    """Interleave the sine and cosine of each angle."""
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
