"""Task init_table: a new table of token rows."""

import torch
from torch import Tensor


def init_table(vocab_size: int, n_embd: int, std: float, padding_idx: int | None) -> Tensor:
    """A table with one row for each id, drawn from N(0, std); the row padding_idx, if there is one, is zero."""
    table = torch.randn(vocab_size, n_embd) * std
    if padding_idx is not None:  # 0 is an id like any other
        table[padding_idx] = 0.0
    return table
