"""Task sgd_rows: update only the rows that were looked up."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    """Take one step for the rows of `ids`, in place; return the ids of the changed rows, each once, ascending."""
    rows, place = ids.unique(return_inverse=True)
    gradient = torch.zeros(len(rows), table.shape[1], dtype=table.dtype)
    gradient.index_add_(0, place.flatten(), upstream.flatten(0, 1))
    old = table[rows]
    table[rows] = old - rate * (gradient + decay * old)
    return rows
