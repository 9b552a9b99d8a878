"""Task basic_forward: look up a batch of ids, and look at the result."""

import torch
from torch import Tensor


def basic_forward(weight: Tensor, input_ids: Tensor, padding_idx: int) -> tuple[Tensor, Tensor, bool]:
    """Hidden states, five numbers of the first token of the first text, and whether all padding vectors are zero."""
    return torch.zeros(1), torch.zeros(5), False  # write it here
