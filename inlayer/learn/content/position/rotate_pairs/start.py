"""Rotary positions: turn pairs of channels by an angle that grows with the position."""

from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    """Queries or keys x (B, T, K), turned; positions is (T,), and channel i is paired with channel i + K / 2."""
    return x
