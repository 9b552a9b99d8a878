"""Task init_table: initialize an embedding table."""

import torch
from torch import Tensor


def init_table(vocab_size: int, n_embd: int, std: float, padding_idx: int | None) -> Tensor:
    """Return a table with one row per id, drawn from N(0, std); row padding_idx, if given, is zero."""
    return torch.zeros(1)  # write your code here
