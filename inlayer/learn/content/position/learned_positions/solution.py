"""Learned positions: the row of the token plus the row of its position."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    """Return hidden states (B, T, D) for ids (B, T); token_table is (V, D), position_table is (block_size, D)."""
    length, block_size = ids.shape[1], position_table.shape[0]
    if length > block_size:
        raise ValueError(f"the text has {length} tokens, but there are only {block_size} positions")
    return token_table[ids] + position_table[:length]
