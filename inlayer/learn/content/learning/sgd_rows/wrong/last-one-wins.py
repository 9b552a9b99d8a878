"""Subtracts with all ids at once: where an id stands twice, the later write wins."""

from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    rows = ids.flatten()
    table[rows] -= rate * (upstream.flatten(0, 1) + decay * table[rows])
    return rows.unique()
