"""Divides by the number of positions again, which the mean loss already did."""

import torch
from torch import Tensor


def row_gradient(ids: Tensor, upstream: Tensor, vocab_size: int, padding_idx: int | None) -> Tensor:
    gradient = torch.zeros(vocab_size, upstream.shape[-1], dtype=upstream.dtype)
    gradient.index_add_(0, ids.flatten(), upstream.flatten(0, 1) / ids.numel())
    if padding_idx is not None:
        gradient[padding_idx] = 0
    return gradient
