"""Collects the rows of a word in a set."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    vectors = []
    for word in words:
        key = zlib.crc32(word.encode())
        rows = {len(table) * (key * multiplier % 2**32) >> 32 for multiplier in multipliers}
        vectors.append(table[list(rows)].sum(0))
    return torch.stack(vectors)
