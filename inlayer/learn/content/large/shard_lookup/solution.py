"""A table cut by rows."""

import torch
from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    """What process `rank` finds of the rows of `ids` (B, T) among its own: (B, T, D), zeros for ids of others."""
    each = -(-len(table) // processes)  # rounded up
    first, last = rank * each, (rank + 1) * each
    own = table[first:last]
    mine = (ids >= first) & (ids < last)
    found = torch.zeros(*ids.shape, table.shape[1], dtype=table.dtype)
    found[mine] = own[ids[mine] - first]
    return found
