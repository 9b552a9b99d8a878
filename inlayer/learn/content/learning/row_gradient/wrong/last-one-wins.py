"""Adds with an index, so the last write wins for a repeated id."""

import torch
from torch import Tensor


def row_gradient(ids: Tensor, upstream: Tensor, vocab_size: int, padding_idx: int | None) -> Tensor:
    gradient = torch.zeros(vocab_size, upstream.shape[-1], dtype=upstream.dtype)
    gradient[ids.flatten()] += upstream.flatten(0, 1)
    if padding_idx is not None:
        gradient[padding_idx] = 0
    return gradient
