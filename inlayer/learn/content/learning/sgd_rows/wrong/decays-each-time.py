"""Takes one step per position, including the decay."""

from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    for row, place in zip(ids.flatten().tolist(), upstream.flatten(0, 1)):
        table[row] -= rate * (place + decay * table[row])
    return ids.unique()
