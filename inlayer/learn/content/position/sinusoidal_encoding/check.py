"""Checks of "Waves for places"."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlayer.learn.checks import same_dtype, same_shape, same_values
from inlayer.learn.session import Exam, Failed
from inlayer.positions import sinusoidal_encoding as waves_of

NAME = "sinusoids"
PARAMETERS = ("positions", "n_embd")
WITHOUT = ("inlayer",)

CLOSE = 2e-3  # float32 angles of the learner's against ours, at positions of a few hundred


def shape(exam: Exam) -> None:
    """n_embd channels for every position"""
    length, width = exam.number(3, 6), 2 * exam.number(4, 8)
    got = exam.call(torch.arange(length), width)
    same_shape(got, (length, width), "T D", wrong={"swapped-sizes": ((width, length), "the two axes are swapped")})
    same_dtype(got, torch.float32)


def values(exam: Exam) -> None:
    """sine and cosine of every pair, side by side"""
    length, width = exam.number(20, 30), 2 * exam.number(4, 8)
    positions = torch.arange(length)
    got, want = exam.call(positions, width), waves_of(positions, width)
    pair = torch.arange(width // 2)
    alone = positions[:, None] / 10_000 ** (torch.arange(width) / width)
    mixed = alone.sin()
    mixed[:, 1::2] = alone.cos()[:, 1::2]
    same_values(
        got,
        want,
        wrong={
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
            "every-channel-its-own": (
                mixed,
                "the sine and the cosine beside it turn at different speeds; the two of a pair share one angle",
            ),
            "multiplied": (
                interleave(positions[:, None] * 10_000 ** (2 * pair / width)),
                "the waves get faster from pair to pair; the position is divided by the power",
            ),
            "off-by-one": (waves_of(positions + 1, width), "these are the waves of the positions one further"),
        },
        message="the waves are not those of the formula",
        atol=CLOSE,
    )


def any_positions(exam: Exam) -> None:
    """positions in any order, and far out"""
    positions, width = exam.ids(700, (exam.number(5, 9),), low=10), 2 * exam.number(4, 8)
    positions[1] = positions[0]
    counted = torch.arange(len(positions))
    same_values(
        exam.call(positions, width),
        waves_of(positions, width),
        wrong={
            "counts-itself": (
                waves_of(counted, width),
                "the waves are those of 0, 1, 2, ...; the positions given were others, and not in order",
            )
        },
        message="the waves at positions that are not 0, 1, 2, ... differ",
        atol=CLOSE,
    )


def odd(exam: Exam) -> None:
    """an odd width: the last sine stands alone"""
    positions, width = torch.arange(exam.number(4, 9)), 2 * exam.number(2, 7) + 1
    answer = exam.run(positions, width)
    if answer.raised is not None:
        raise Failed("odd-width", f"with n_embd = {width} it raised {answer.raised}")
    if isinstance(answer.value, Tensor) and answer.value.shape != (len(positions), width):
        raise Failed("odd-width", f"n_embd = {width} gave a shape of {tuple(answer.value.shape)}")
    even = torch.arange(0, width, 2)
    rounded = positions[:, None] / 10_000 ** (even / (width + 1))
    same_values(
        answer.value,
        waves_of(positions, width),
        wrong={
            "width-rounded-up": (
                interleave(rounded)[:, :width],
                "the exponent divides by the next even number; D is the width that was asked for, odd or not",
            )
        },
        message=f"with the odd width {width} the waves are not those of the formula",
        atol=CLOSE,
    )


def a_step_is_a_turn(exam: Exam) -> None:
    """a step of k tokens turns every pair by the same angle, wherever it starts"""
    width, step = 2 * exam.number(3, 6), exam.number(1, 9)
    start = exam.ids(300, (2,))
    got = exam.call(torch.cat((start, start + step)), width)
    same_shape(got, (4, width), "T D")
    hands = torch.complex(got[:, 1::2].double(), got[:, 0::2].double())
    turned = hands[2:] / hands[:2]
    if float((turned[0] - turned[1]).abs().max()) > math.sqrt(CLOSE):
        raise Failed("not-a-turn", f"from p to p + {step} the pairs turn by different angles, depending on p")


CHECKS = (shape, values, any_positions, odd, a_step_is_a_turn)


def own(exam: Exam) -> Tensor:
    """The waves of the four tokens of the walk's sentence, as wide as one of the sample's heads."""
    got: Tensor = exam.call(torch.arange(4), 32)
    return got


def interleave(angles: Tensor) -> Tensor:
    """Sine and cosine of each angle, side by side."""
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
