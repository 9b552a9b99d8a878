"""Task table_bytes: the memory of a model's table and head."""

import torch


def table_bytes(vocab_size: int, n_embd: int, dtype: torch.dtype, tied: bool) -> int:
    """Return the bytes of the input table plus, if it is not tied, those of the head."""
    return 0  # write your code here
