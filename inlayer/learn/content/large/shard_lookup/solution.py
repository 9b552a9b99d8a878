"""Task shard_lookup: a table sharded by rows."""

import torch
from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    """Return the rows of `ids` (B, T) that process `rank` holds: (B, T, D), with zeros for all other ids."""
    each = -(-len(table) // processes)  # rounded up
    first, last = rank * each, (rank + 1) * each
    own = table[first:last]
    mine = (ids >= first) & (ids < last)
    found = torch.zeros(*ids.shape, table.shape[1], dtype=table.dtype)
    found[mine] = own[ids[mine] - first]
    return found
