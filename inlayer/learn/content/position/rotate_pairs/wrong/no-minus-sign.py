"""Omits the minus sign, which changes the norm of a pair."""

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    width = x.shape[-1]
    speed = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = positions[:, None].float() * speed
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x.float().chunk(2, dim=-1)
    swapped = torch.cat((second, first), dim=-1)
    return (x.float() * cos + swapped * sin).to(x.dtype)
