"""Task row_gradient: the gradient of a table."""

import torch
from torch import Tensor


def row_gradient(ids: Tensor, upstream: Tensor, vocab_size: int, padding_idx: int | None) -> Tensor:
    """Return the gradient (V, D) of a table from the ids (B, T) and the gradient (B, T, D) of their hidden states."""
    gradient = torch.zeros(vocab_size, upstream.shape[-1], dtype=upstream.dtype)
    gradient.index_add_(0, ids.flatten(), upstream.flatten(0, 1))
    if padding_idx is not None:
        gradient[padding_idx] = 0
    return gradient
