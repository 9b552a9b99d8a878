"""Adds the decay to the gradient of every position."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    rows, place = ids.unique(return_inverse=True)
    each = upstream.flatten(0, 1) + decay * table[ids.flatten()]
    table[rows] -= rate * torch.zeros(len(rows), table.shape[1]).index_add_(0, place.flatten(), each)
    return rows
