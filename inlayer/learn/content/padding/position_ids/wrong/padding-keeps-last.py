"""Only lifts what is negative: padding after a text keeps the number of its last token."""

from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return (mask.cumsum(dim=1) - 1).clamp(min=0)
