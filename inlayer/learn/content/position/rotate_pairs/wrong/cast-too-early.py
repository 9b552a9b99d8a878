"""Computes angles in float32, but casts cosines and sines before multiplying."""

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    width = x.shape[-1]
    speed = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = positions[:, None].float() * speed
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, first * sin + second * cos), dim=-1)
