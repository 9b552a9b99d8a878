"""Task init_table: initialize an embedding table."""

import torch
from torch import Tensor


def init_table(vocab_size: int, n_embd: int, std: float, padding_idx: int | None) -> Tensor:
    """Return a table with one row per id, drawn from N(0, std); row padding_idx, if given, is zero."""
    table = torch.randn(vocab_size, n_embd) * std
    if padding_idx is not None:  # 0 is a valid id
        table[padding_idx] = 0.0
    return table
