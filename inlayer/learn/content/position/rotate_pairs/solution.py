"""Rotary positions: rotate channel pairs by an angle that grows with the position."""

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    """Rotate queries or keys x (B, T, K); positions is (T,), and channel i is paired with channel i + K / 2."""
    width = x.shape[-1]
    speed = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)  # radians per token, one for each pair
    angles = positions[:, None].float() * speed  # (T, K / 2), in float32 whatever the dtype of x
    cos, sin = angles.cos(), angles.sin()
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return turned.to(x.dtype)
