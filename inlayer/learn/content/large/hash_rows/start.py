"""Task hash_rows: embeddings without a vocabulary."""

import torch
from torch import Tensor


def hash_rows(words: list[str], table: Tensor, multipliers: list[int]) -> Tensor:
    """Return vectors (N, D) for N words: for each, the sum of the rows that its hashes select."""
    # write your code here: a key for each word, a row for each of its hashes
    return torch.zeros(len(words), table.shape[1], dtype=table.dtype)
