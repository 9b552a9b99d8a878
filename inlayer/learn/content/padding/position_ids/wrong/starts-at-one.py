"""Forgets that the cumulative sum includes the token itself."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return mask.cumsum(dim=1).masked_fill(~mask, 0)
