"""Clamps only negative values, so padding after a text keeps the last position."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return (mask.cumsum(dim=1) - 1).clamp(min=0)
