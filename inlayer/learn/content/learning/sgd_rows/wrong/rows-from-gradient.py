"""Finds the rows by their gradient, and so misses those with a zero gradient."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    gradient = torch.zeros_like(table).index_add_(0, ids.flatten(), upstream.flatten(0, 1))
    rows = gradient.any(1).nonzero().flatten()
    table[rows] -= rate * (gradient[rows] + decay * table[rows])
    return rows
