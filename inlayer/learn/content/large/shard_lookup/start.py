"""A table cut by rows."""

import torch
from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    """What process `rank` finds of the rows of `ids` (B, T) among its own: (B, T, D), zeros for ids of others."""
    # your code: the rows that this process holds, at their places
    return torch.zeros(*ids.shape, table.shape[1], dtype=table.dtype)
