"""Counts in floats, which cannot index rows."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return (mask.float().cumsum(dim=1) - 1).masked_fill(~mask, 0)
