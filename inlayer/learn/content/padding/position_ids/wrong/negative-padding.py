"""Leaves -1 for padding in front, which no position table has."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return mask.cumsum(dim=1) - 1
