"""Gives each channel its own frequency, so sines and cosines do not match."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    angles = positions[:, None] / 10_000 ** (torch.arange(n_embd) / n_embd)
    encoding = angles.sin()
    encoding[:, 1::2] = angles.cos()[:, 1::2]
    return encoding
