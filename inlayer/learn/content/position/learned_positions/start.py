"""Learned positions: the row of the token plus the row of its position."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    """Return hidden states (B, T, D) for ids (B, T); token_table is (V, D), position_table is (block_size, D)."""
    return token_table[ids]  # TODO: add the positions
