"""Adds sines and cosines instead of rotating."""

import torch
from torch import Tensor


def rotate_pairs(x: Tensor, positions: Tensor, theta: float = 10_000.0) -> Tensor:
    width = x.shape[-1]
    speed = theta ** -(torch.arange(0, width, 2, dtype=torch.float32) / width)
    angles = positions[:, None].float() * speed
    return x + torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype)
