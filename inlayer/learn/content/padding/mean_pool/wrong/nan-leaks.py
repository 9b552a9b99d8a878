"""Multiplies padding by 0, which keeps NaN."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    weight = mask.to(hidden.dtype).unsqueeze(-1)
    return (hidden * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)
