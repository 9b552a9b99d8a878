"""Averages over an id's positions."""

import torch
from torch import Tensor


def row_gradient(ids: Tensor, upstream: Tensor, vocab_size: int, padding_idx: int | None) -> Tensor:
    gradient = torch.zeros(vocab_size, upstream.shape[-1], dtype=upstream.dtype)
    gradient.index_add_(0, ids.flatten(), upstream.flatten(0, 1))
    counts = torch.bincount(ids.flatten(), minlength=vocab_size).clamp(min=1)
    gradient = gradient / counts[:, None]
    if padding_idx is not None:
        gradient[padding_idx] = 0
    return gradient
