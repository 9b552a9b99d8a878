"""Adds positions only to the first text in the batch."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    length, block_size = ids.shape[1], position_table.shape[0]
    if length > block_size:
        raise ValueError(f"{length} tokens, {block_size} positions")
    hidden = token_table[ids]
    hidden[0] = hidden[0] + position_table[:length]
    return hidden
