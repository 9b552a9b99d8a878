"""Task shard_lookup: a table sharded by rows."""

import torch
from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    """Return the rows of `ids` (B, T) that process `rank` holds: (B, T, D), with zeros for all other ids."""
    # write your code here: look up the rows that this process holds
    return torch.zeros(*ids.shape, table.shape[1], dtype=table.dtype)
