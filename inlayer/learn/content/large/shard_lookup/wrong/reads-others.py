"""Looks up everything and multiplies other rows by zero."""

from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    each = -(-len(table) // processes)
    mine = (ids >= rank * each) & (ids < (rank + 1) * each)
    return table[ids] * mine[..., None]
