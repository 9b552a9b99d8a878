"""Raises an error without the two numbers."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    length, block_size = ids.shape[1], position_table.shape[0]
    if length > block_size:
        raise ValueError("the text is too long")
    return token_table[ids] + position_table[:length]
