"""Sinusoidal positions: fixed waves instead of learned rows."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, n_embd: int) -> Tensor:
    """The waves (T, D), float32, at positions (T,): sine and cosine side by side."""
    even = torch.arange(0, n_embd, 2)  # 2i, the first channel of each pair
    angles = positions[:, None] / 10_000 ** (even / n_embd)  # (T, 1) / (pairs,) is (T, pairs)
    waves = torch.empty(len(positions), n_embd)
    waves[:, 0::2] = angles.sin()
    waves[:, 1::2] = angles.cos()[:, : n_embd // 2]  # with odd D the last sine stands alone
    return waves
