"""Teach only the rows that were looked up."""

import torch
from torch import Tensor


def sgd_rows(table: Tensor, ids: Tensor, upstream: Tensor, rate: float, decay: float) -> Tensor:
    """One step for the rows of `ids`, in place; returns the ids of the rows it changed, each once, in rising order."""
    # your code
    return torch.zeros(0, dtype=torch.int64)
