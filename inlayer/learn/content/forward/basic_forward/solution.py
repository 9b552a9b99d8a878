"""Task basic_forward: look up a batch of ids, and look at the result."""

import torch
import torch.nn.functional as F
from torch import Tensor


def basic_forward(weight: Tensor, input_ids: Tensor, padding_idx: int) -> tuple[Tensor, Tensor, bool]:
    """Hidden states, five numbers of the first token of the first text, and whether all padding vectors are zero."""
    hidden = F.embedding(input_ids, weight)
    first_five = hidden[0, 0, :5]
    padding_is_zero = bool(torch.all(hidden[input_ids == padding_idx] == 0))
    return hidden, first_five, padding_is_zero
