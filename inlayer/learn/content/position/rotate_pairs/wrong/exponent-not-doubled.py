"""Uses i / K instead of 2i / K, so slow pairs rotate far too fast."""

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    width = x.shape[-1]
    speed = theta ** -(torch.arange(width // 2, dtype=torch.float32) / width)
    angles = positions[:, None].float() * speed
    cos, sin = angles.cos(), angles.sin()
    first, second = x.float().chunk(2, dim=-1)
    turned = torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
    return turned.to(x.dtype)
