"""Counts the real tokens, then takes that many from the start."""

import torch
from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    lengths = mask.long().sum(dim=1).clamp(min=1).tolist()
    return torch.stack([hidden[b, :length].mean(dim=0) for b, length in enumerate(lengths)])
