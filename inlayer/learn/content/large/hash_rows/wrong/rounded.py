"""Computes in float32, which has 24 bits; h has 32."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    hashes = [[zlib.crc32(word.encode()) * factor % 2**32 for factor in multipliers] for word in words]
    shares = torch.tensor(hashes).float() / 2**32
    rows = (shares * len(table)).long().clamp(max=len(table) - 1)
    return table[rows].sum(1)
