"""Leaves the refusal to torch, whose words are about shapes; with a table of one row it would not even refuse."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    return token_table[ids] + position_table[: ids.shape[1]]
