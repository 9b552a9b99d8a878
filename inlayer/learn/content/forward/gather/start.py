"""Task gather: a lookup without nn.Embedding."""

import torch
from torch import Tensor


def gather(table: Tensor, ids: Tensor) -> Tensor:
    """Return the row of every id: the shape of the ids plus one axis for the width of the table."""
    return torch.zeros(1)  # write your code here
