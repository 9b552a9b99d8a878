"""Subtracts with all ids at once, so the last write wins for a repeated id."""

from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    rows = ids.flatten()
    table[rows] -= rate * (upstream.flatten(0, 1) + decay * table[rows])
    return rows.unique()
