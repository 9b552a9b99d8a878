"""Uses the remainder, as hash tables do."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    keys = [zlib.crc32(word.encode()) for word in words]
    rows = [[key * multiplier % 2**32 % len(table) for multiplier in multipliers] for key in keys]
    return table[torch.tensor(rows)].sum(1)
