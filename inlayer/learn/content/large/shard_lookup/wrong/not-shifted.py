"""Uses global row numbers in its own part."""

from torch import Tensor


def shard_lookup(table: Tensor, ids: Tensor, rank: int, processes: int) -> Tensor:
    each = -(-len(table) // processes)
    first, last = rank * each, (rank + 1) * each
    own = table[first:last]
    mine = (ids >= first) & (ids < last)
    return own[ids.clamp(max=len(own) - 1)] * mine[..., None]
