"""Checks for the task "Rotate channel pairs"."""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.learn.assertions import check_dtype, check_shape, check_values
from inlayer.learn.session import CheckFailed, GradingSession

NAME = "rotate_pairs"
PARAMETERS = ("x", "positions", "theta")
FORBIDDEN = ("inlayer",)

CLOSE = 2e-3  # tolerance between the learner's float32 angles and our float64 ones
ROUNDED = 1.01 * 2**-8  # relative rounding error of bfloat16


def shape(session: GradingSession) -> None:
    """returns the shape and dtype of x"""
    x = draw(session)
    got = session.call(x, torch.arange(x.shape[1]))
    check_shape(got, tuple(x.shape), "B T K")
    check_dtype(got, x.dtype)


def values(session: GradingSession) -> None:
    """rotates every pair by its angle"""
    x = draw(session)
    positions = torch.arange(x.shape[1])
    width = x.shape[2]
    pair = torch.arange(width // 2, dtype=torch.float64)
    angles = positions[:, None] * 10_000 ** -(2 * pair / width)
    waves = torch.cat((angles.sin(), angles.cos()), dim=-1)
    check_values(
        session.call(x, positions),
        rotate(x, angles),
        mistakes={
            "not-rotated": (x.double(), "x came back unchanged: nothing was rotated"),
            "interleaved-pairs": (
                rotate(x, angles, interleaved=True),
                "you paired channel 0 with 1 and 2 with 3; pair channel i with channel i + K / 2",
            ),
            "wrong-direction": (rotate(x, -angles), "the pairs are rotated clockwise; check the signs of the sines"),
            "no-minus-sign": (
                rotate(x, angles, minus=1),
                "one of the two sines has the wrong sign: the norm of the pairs changes, so this is not a rotation",
            ),
            "exponent-not-doubled": (
                rotate(x, positions[:, None] * 10_000 ** -(pair / width)),
                "the frequencies of neighboring pairs are too close; check the exponent for the last i",
            ),
            "adds-encoding": (x + waves, "you added sines and cosines to x; a rotation multiplies by them"),
            "starts-at-one": (
                rotate(x, angles + 10_000 ** -(2 * pair / width)),
                "every token is rotated as if it were one position further; positions start at 0",
            ),
        },
        message="the pairs are not rotated as in the formula",
        atol=CLOSE,
    )


def gradient(session: GradingSession) -> None:
    """lets the gradient flow through the rotation"""
    x = draw(session)
    positions = torch.arange(x.shape[1])
    weight = session.random_normal(*x.shape)
    got = session.gradient(x, positions, of=0, weight=weight)
    if got is None:
        raise CheckFailed("no-gradient", "no gradient reaches x: the result is detached from it")
    want = rotate(weight, -angles_of(positions, x.shape[2]))
    message = "the gradient is not the upstream gradient rotated back"
    check_values(got, want, rule="gradient", message=message, atol=CLOSE)


def any_positions(session: GradingSession) -> None:
    """uses the given positions, not the indices in x"""
    x = draw(session)
    positions = session.random_ids(400, (x.shape[1],), low=20)
    check_values(
        session.call(x, positions),
        rotate(x, angles_of(positions, x.shape[2])),
        mistakes={
            "ignores-positions": (
                rotate(x, angles_of(torch.arange(x.shape[1]), x.shape[2])),
                "the tokens are rotated as if they were at 0, 1, 2, ...; use the given positions",
            )
        },
        message="the rotation is wrong for positions other than 0, 1, 2, ...",
        atol=CLOSE,
    )


def base(session: GradingSession) -> None:
    """uses theta"""
    x, theta = draw(session), float(session.random_int(20_000, 1_000_000))
    positions = torch.arange(x.shape[1]) + session.random_int(5, 30)
    check_values(
        session.call(x, positions, theta=theta),
        rotate(x, angles_of(positions, x.shape[2], theta)),
        mistakes={
            "theta-ignored": (
                rotate(x, angles_of(positions, x.shape[2])),
                f"theta was {theta:,.0f}, but the pairs rotate as with 10,000",
            )
        },
        message="the rotation is wrong for a different theta",
        atol=CLOSE,
    )


def half_types(session: GradingSession) -> None:
    """rotates bfloat16 in float32 and rounds once"""
    x = draw(session).bfloat16()
    positions = session.random_ids(3000, (x.shape[1],), low=1000)
    positions[0] = 2 * session.random_int(600, 1400) + 1  # odd, because bfloat16 has no odd integers up there
    answer = session.try_call(x, positions)
    if answer.raised is not None:
        raise CheckFailed("half-raises", f"your code raised {answer.raised} for x in bfloat16")
    check_dtype(answer.value, torch.bfloat16)
    check_values(
        answer.value,
        rotate(x, angles_of(positions, x.shape[2])),
        rule="low-precision-angles",
        message=(
            f"x in bfloat16 at positions such as {int(positions[0]):,} is rotated by wrong angles; "
            "bfloat16 cannot represent them, so cast only the result"
        ),
        atol=0.06,
        rtol=0.02,
    )
    x = session.random_normal(2, session.random_int(12, 16), 2 * session.random_int(12, 16)).bfloat16()
    positions = session.random_ids(100, (x.shape[1],))
    check_values(
        session.call(x, positions),
        rotate(x, angles_of(positions, x.shape[2])),
        rule="cast-too-early",
        message=(
            "the bfloat16 result is off by more than its own rounding: cosines, sines, or products were "
            "cast to bfloat16 too early"
        ),
        atol=5e-4,
        rtol=ROUNDED,
    )


def distance(session: GradingSession) -> None:
    """keeps norms, and scores depend only on the distance"""
    width, shift = 2 * session.random_int(3, 8), session.random_int(1, 200)
    pair = session.random_normal(1, 2, width)  # a query and a key
    near = torch.tensor([session.random_int(5, 9), session.random_int(0, 4)])
    here, there = session.call(pair, near), session.call(pair, near + shift)
    check_shape(here, (1, 2, width), "B T K")
    check_shape(there, (1, 2, width), "B T K")
    lengths = pair.norm(dim=-1)
    message = "the norm of a token changed during the rotation"
    check_values(here.norm(dim=-1), lengths, rule="length-changed", message=message, atol=1e-2)
    if abs(float(here[0, 0] @ here[0, 1] - there[0, 0] @ there[0, 1])) > 0.02:
        raise CheckFailed(
            "distance", f"the score of a query and a key changed when both were shifted by {shift}; it must not change"
        )


CHECKS = (shape, values, gradient, any_positions, base, half_types, distance)


def walk_output(session: GradingSession) -> Tensor:
    """Rotate vectors (1, 0) like the sample's heads do: the results are the cosines shown in the walk."""
    hands = torch.tensor([1.0, 0.0]).repeat_interleave(16).expand(1, 4, 32).bfloat16()
    got: Tensor = session.call(hands, torch.arange(4))
    return got[0, :, :16]


def draw(session: GradingSession) -> Tensor:
    """Return random queries of one head."""
    return session.random_normal(session.random_int(2, 3), session.random_int(5, 8), 2 * session.random_int(5, 9))


def angles_of(positions: Tensor, width: int, theta: float = 10_000.0) -> Tensor:
    return positions[:, None] * theta ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)


def rotate(x: Tensor, angles: Tensor, *, interleaved: bool = False, minus: int = -1) -> Tensor:
    """Rotate in float64, one pair at a time."""
    wide, width = x.double(), x.shape[-1]
    rotated = torch.empty_like(wide)
    for pair in range(width // 2):
        i, j = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + width // 2)
        cos, sin = angles[:, pair].cos(), angles[:, pair].sin()
        rotated[..., i] = wide[..., i] * cos + minus * wide[..., j] * sin
        rotated[..., j] = wide[..., i] * sin + wide[..., j] * cos
    return rotated
