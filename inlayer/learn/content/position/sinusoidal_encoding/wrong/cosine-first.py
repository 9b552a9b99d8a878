"""Cosine on the even channels, sine on the odd ones."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, n_embd: int) -> Tensor:
    even = torch.arange(0, n_embd, 2)
    angles = positions[:, None] / 10_000 ** (even / n_embd)
    waves = torch.empty(len(positions), n_embd)
    waves[:, 0::2] = angles.cos()
    waves[:, 1::2] = angles.sin()[:, : n_embd // 2]
    return waves
