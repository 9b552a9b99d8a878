"""Returns only the token rows."""

from torch import Tensor


def learned_positions(token_table: Tensor, position_table: Tensor, ids: Tensor) -> Tensor:
    if ids.shape[1] > position_table.shape[0]:
        raise ValueError(f"{ids.shape[1]} tokens, {position_table.shape[0]} positions")
    return token_table[ids]
