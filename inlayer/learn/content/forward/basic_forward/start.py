"""Task basic_forward: look up a batch of ids and inspect the result."""

import torch
from torch import Tensor


def basic_forward(weight: Tensor, input_ids: Tensor, padding_idx: int) -> tuple[Tensor, Tensor, bool]:
    """Return the hidden states, five values of the very first token, and whether all padding vectors are zero."""
    return torch.zeros(1), torch.zeros(5), False  # write your code here
