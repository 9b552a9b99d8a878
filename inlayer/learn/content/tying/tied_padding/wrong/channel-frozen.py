"""Confuses the two axes."""

import torch
from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    is_padding = torch.arange(table.shape[1]) == padding_idx
    rows = torch.where(is_padding, table.detach(), table)
    return hidden @ rows.T
