"""Averages over a row's positions."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    rows, place, counts = ids.unique(return_inverse=True, return_counts=True)
    gradient = torch.zeros(len(rows), table.shape[1]).index_add_(0, place.flatten(), upstream.flatten(0, 1))
    table[rows] -= rate * (gradient / counts[:, None] + decay * table[rows])
    return rows
