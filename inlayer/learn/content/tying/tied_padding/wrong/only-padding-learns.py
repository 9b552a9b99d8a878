"""Swaps the two branches of where."""

import torch
from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    is_padding = torch.arange(len(table)) == padding_idx
    rows = torch.where(is_padding[:, None], table, table.detach())
    return hidden @ rows.T
