"""Uses the bytes of a different encoding."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    keys = [zlib.crc32(word.encode("latin-1", "replace")) for word in words]
    rows = [[len(table) * (key * multiplier % 2**32) >> 32 for multiplier in multipliers] for key in keys]
    return table[torch.tensor(rows)].sum(1)
