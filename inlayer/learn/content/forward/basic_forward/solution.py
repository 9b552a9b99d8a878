"""Task basic_forward: look up a batch of ids and inspect the result."""

import torch
import torch.nn.functional as F
from torch import Tensor


def basic_forward(weight: Tensor, input_ids: Tensor, padding_idx: int) -> tuple[Tensor, Tensor, bool]:
    """Return the hidden states, five values of the very first token, and whether all padding vectors are zero."""
    hidden = F.embedding(input_ids, weight)
    first_five = hidden[0, 0, :5]
    padding_is_zero = bool(torch.all(hidden[input_ids == padding_idx] == 0))
    return hidden, first_five, padding_is_zero
