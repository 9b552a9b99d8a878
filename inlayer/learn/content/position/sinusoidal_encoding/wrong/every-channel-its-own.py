"""Gives each channel its own frequency, so that no cosine belongs to a sine."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, n_embd: int) -> Tensor:
    angles = positions[:, None] / 10_000 ** (torch.arange(n_embd) / n_embd)
    waves = angles.sin()
    waves[:, 1::2] = angles.cos()[:, 1::2]
    return waves
