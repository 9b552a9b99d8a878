"""Task gather: a lookup by hand."""

import torch
from torch import Tensor


def gather(table: Tensor, ids: Tensor) -> Tensor:
    """The row of every id: the shape of the ids, and the width of the table as one axis more."""
    return torch.zeros(1)  # write it here
