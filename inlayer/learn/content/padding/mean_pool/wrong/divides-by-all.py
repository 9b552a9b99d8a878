"""Excludes padding from the sum, but not from the count."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    return (hidden * mask.unsqueeze(-1)).mean(dim=1)
