"""Uses i / D instead of 2i / D, so the slowest pair is a hundred times too fast."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    pair = torch.arange((n_embd + 1) // 2)
    angles = positions[:, None] / 10_000 ** (pair / n_embd)
    encoding = torch.empty(len(positions), n_embd)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, : n_embd // 2]
    return encoding
