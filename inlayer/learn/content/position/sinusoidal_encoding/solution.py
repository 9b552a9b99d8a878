"""Sinusoidal positions: a fixed encoding instead of learned rows."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    """Return the encoding (T, D), float32, for positions (T,), sines and cosines interleaved."""
    even = torch.arange(0, n_embd, 2)  # 2i, the first channel of each pair
    angles = positions[:, None] / 10_000 ** (even / n_embd)  # (T, 1) / (pairs,) is (T, pairs)
    encoding = torch.empty(len(positions), n_embd)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, : n_embd // 2]  # with odd D, the last sine has no cosine
    return encoding
