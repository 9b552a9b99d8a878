"""Ignores the positions it is given and counts from 0."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, n_embd: int) -> Tensor:
    even = torch.arange(0, n_embd, 2)
    angles = torch.arange(len(positions))[:, None] / 10_000 ** (even / n_embd)
    waves = torch.empty(len(positions), n_embd)
    waves[:, 0::2] = angles.sin()
    waves[:, 1::2] = angles.cos()[:, : n_embd // 2]
    return waves
