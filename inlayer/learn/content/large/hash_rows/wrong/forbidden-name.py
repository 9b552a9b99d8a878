"""Uses Python's hash, which changes on every start."""

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    keys = [hash(word) % 2**32 for word in words]
    rows = [[len(table) * (key * multiplier % 2**32) >> 32 for multiplier in multipliers] for key in keys]
    return table[torch.tensor(rows)].sum(1)
