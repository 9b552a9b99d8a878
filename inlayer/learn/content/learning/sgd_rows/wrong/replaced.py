"""Replaces the row with the step."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    rows, place = ids.unique(return_inverse=True)
    gradient = torch.zeros(len(rows), table.shape[1]).index_add_(0, place.flatten(), upstream.flatten(0, 1))
    table[rows] = -rate * (gradient + decay * table[rows])
    return rows
