"""Position ids of a padded batch: the real tokens of each text are numbered 0, 1, 2, ..."""

import torch
from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    """Position ids (B, T) int64 from mask (B, T) bool; padding gets 0."""
    return torch.arange(mask.shape[1])
