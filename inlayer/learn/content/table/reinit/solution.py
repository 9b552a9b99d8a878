"""Task reinit: draw the values of a table again, in place."""

import torch
from torch import Tensor


def reinit(weight: Tensor, std: float, padding_idx: int | None) -> None:
    """Fill the table from N(0, std), in place; the padding row, if there is one, is zero afterwards."""
    with torch.no_grad():
        weight.normal_(0.0, std)
        if padding_idx is not None:
            weight[padding_idx].zero_()  # normal_ filled this row too
