"""Multiplies by the power instead of dividing, so frequencies grow."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    even = torch.arange(0, n_embd, 2)
    angles = positions[:, None] * 10_000 ** (even / n_embd)
    encoding = torch.empty(len(positions), n_embd)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, : n_embd // 2]
    return encoding
