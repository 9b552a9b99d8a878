"""Task table_bytes: the memory of a model's rows."""

import torch


def table_bytes(vocab_size: int, n_embd: int, dtype: torch.dtype, tied: bool) -> int:
    """The bytes of the input table and, where it is not tied, of the head."""
    return 0  # write it here
