"""Task sgd_rows: update only the rows that were looked up."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    """Take one step for the rows of `ids`, in place; return the ids of the changed rows, each once, ascending."""
    # write your code here
    return torch.zeros(0, dtype=torch.int64)
