"""Returns the rows in order of appearance."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    gradients = {}
    for row, place in zip(ids.flatten().tolist(), upstream.flatten(0, 1)):
        gradients[row] = gradients.get(row, 0) + place
    for row, gradient in gradients.items():
        table[row] -= rate * (gradient + decay * table[row])
    return torch.tensor(list(gradients))
