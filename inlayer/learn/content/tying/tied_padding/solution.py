"""Task tied_padding: keep a tied padding row at zero."""

import torch
from torch import Tensor


def tied_padding(hidden: Tensor, table: Tensor, padding_idx: int) -> Tensor:
    """Return logits (B, T, V) of a tied head that sends the padding row no gradient."""
    is_padding = torch.arange(len(table)) == padding_idx
    rows = torch.where(is_padding[:, None], table.detach(), table)
    return hidden @ rows.T
