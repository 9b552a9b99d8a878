"""Counts in floats: no row can be looked up with them."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return (mask.float().cumsum(dim=1) - 1).masked_fill(~mask, 0)
