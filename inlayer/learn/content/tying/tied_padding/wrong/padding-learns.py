"""Assumes that padding_idx protects the row at both ends."""

from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    return hidden @ table.T
