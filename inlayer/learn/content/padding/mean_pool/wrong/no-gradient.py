"""Computes on a detached copy."""

from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    real = mask.bool()
    kept = hidden.detach().clone()
    kept[~real] = 0.0
    return kept.sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1)
