"""Computes each hash from the previous hash."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    vectors = []
    for word in words:
        key, vector = zlib.crc32(word.encode()), 0
        for multiplier in multipliers:
            key = key * multiplier % 2**32
            vector = vector + table[len(table) * key >> 32]
        vectors.append(vector)
    return torch.stack(vectors)
