"""Starts again at position 0 when the table ends."""

import torch
from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    positions = torch.arange(ids.shape[1]) % position_table.shape[0]
    return token_table[ids] + position_table[positions]
