"""Leaves -1 where padding stands in front: a learned table would be asked for its row -1."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return mask.cumsum(dim=1) - 1
