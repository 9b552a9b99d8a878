"""Copies plain numbers."""

import torch
from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    each = -(-len(table) // processes)
    first, last = rank * each, (rank + 1) * each
    mine = (ids >= first) & (ids < last)
    found = torch.zeros(*ids.shape, table.shape[1], dtype=table.dtype)
    found[mine] = table.data[first:last][ids[mine] - first]
    return found
