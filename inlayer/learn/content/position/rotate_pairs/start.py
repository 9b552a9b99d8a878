"""Rotary positions: rotate channel pairs by an angle that grows with the position."""

from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    """Rotate queries or keys x (B, T, K); positions is (T,), and channel i is paired with channel i + K / 2."""
    return x
