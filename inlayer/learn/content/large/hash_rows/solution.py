"""Task hash_rows: embeddings without a vocabulary."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    """Return vectors (N, D) for N words: for each, the sum of the rows that its hashes select."""
    keys = [zlib.crc32(word.encode("utf-8")) for word in words]
    rows = [[len(table) * (key * multiplier % 2**32) >> 32 for multiplier in multipliers] for key in keys]
    return table[torch.tensor(rows)].sum(1)
