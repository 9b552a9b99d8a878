"""Task both_inputs: the first lines of a model's forward pass."""

import torch.nn.functional as F
from torch import Tensor


def both_inputs(
    weight: Tensor, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
) -> tuple[Tensor, int, int]:
    """Return hidden states, batch size, and length from exactly one of ids and vectors; otherwise raise ValueError."""
    hidden = F.embedding(input_ids, weight)
    return hidden, 1, 1  # write your code here
