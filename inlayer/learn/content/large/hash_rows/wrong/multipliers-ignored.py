"""Looks up the same row for every hash."""

import zlib

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    keys = [zlib.crc32(word.encode()) for word in words]
    rows = [[key % len(table) for _ in multipliers] for key in keys]
    return table[torch.tensor(rows)].sum(1)
