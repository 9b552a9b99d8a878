"""Starts at 1, so row 0 is never used."""

import torch
from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    length, block_size = ids.shape[1], position_table.shape[0]
    if length > block_size:
        raise ValueError(f"{length} tokens, {block_size} positions")
    positions = torch.arange(1, length + 1)
    return token_table[ids] + position_table[positions]
