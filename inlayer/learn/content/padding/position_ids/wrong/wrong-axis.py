"""Counts along the batch instead of along the text."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return (mask.cumsum(dim=0) - 1).masked_fill(~mask, 0)
