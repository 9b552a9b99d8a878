"""Divides by the count even if it is 0."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    real = mask.bool()
    kept = hidden.masked_fill(~real.unsqueeze(-1), 0.0)
    return kept.sum(dim=1) / real.sum(dim=1, keepdim=True)
