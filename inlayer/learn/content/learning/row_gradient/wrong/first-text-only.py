"""Ignores all but the first text."""

import torch
from torch import Tensor


def row_gradient(ids: Tensor, upstream: Tensor, vocab_size: int, padding_idx: int | None) -> Tensor:
    gradient = torch.zeros(vocab_size, upstream.shape[-1], dtype=upstream.dtype)
    for row, place in zip(ids[0].tolist(), upstream[0]):
        if row != padding_idx:
            gradient[row] += place
    return gradient
