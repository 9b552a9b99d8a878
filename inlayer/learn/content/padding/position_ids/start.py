"""Position ids for a padded batch: the real tokens of each text are numbered 0, 1, 2, ..."""

import torch
from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    """Return position ids (B, T) int64 for mask (B, T) bool; padding gets 0."""
    return torch.arange(mask.shape[1])
