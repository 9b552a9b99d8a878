"""Returns only the rows that were looked up."""

import torch
from torch import Tensor


def row_gradient(ids: Tensor, upstream: Tensor, vocab_size: int, padding_idx: int | None) -> Tensor:
    rows, places = ids.flatten().unique(return_inverse=True)
    gradient = torch.zeros(len(rows), upstream.shape[-1], dtype=upstream.dtype)
    gradient.index_add_(0, places, upstream.flatten(0, 1))
    return gradient
