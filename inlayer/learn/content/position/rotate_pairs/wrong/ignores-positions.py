"""Ignores the given positions and counts from 0."""

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    width = x.shape[-1]
    speed = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = torch.arange(x.shape[1])[:, None] * speed
    cos, sin = angles.cos(), angles.sin()
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return turned.to(x.dtype)
