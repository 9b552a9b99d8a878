"""Task both_inputs: the first lines of a model's forward pass."""

import torch.nn.functional as F
from torch import Tensor


def both_inputs(
    weight: Tensor, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None
) -> tuple[Tensor, int, int]:
    """Return hidden states, batch size, and length from exactly one of ids and vectors; otherwise raise ValueError."""
    if input_ids is not None and inputs_embeds is not None:
        raise ValueError("both input_ids and inputs_embeds were given; pass exactly one of them")
    if input_ids is None and inputs_embeds is None:
        raise ValueError("neither input_ids nor inputs_embeds was given; pass exactly one of them")
    hidden = F.embedding(input_ids, weight) if inputs_embeds is None else inputs_embeds
    batch_size, seq_length = hidden.shape[:2]
    return hidden, batch_size, seq_length
