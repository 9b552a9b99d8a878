"""A padding row that stays zero when tied."""

import torch
from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    """Logits (B, T, V) of a tied head that sends the padding row no gradient."""
    is_padding = torch.arange(len(table)) == padding_idx
    rows = torch.where(is_padding[:, None], table.detach(), table)
    return hidden @ rows.T
