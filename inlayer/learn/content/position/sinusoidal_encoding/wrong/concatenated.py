"""Puts all sines first, then all cosines: the other layout."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    even = torch.arange(0, n_embd, 2)
    angles = positions[:, None] / 10_000 ** (even / n_embd)
    return torch.cat((angles.sin(), angles.cos()[:, : n_embd // 2]), dim=-1)
