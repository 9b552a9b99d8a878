"""Adds with an index, so the last write wins for a repeated id."""

import torch
from torch import Tensor


def tied_loss_gradient(table: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    hidden = table[ids]
    by_logits = (hidden @ table.T).softmax(-1)
    by_logits[torch.arange(len(ids)), targets] -= 1
    by_logits /= len(ids)
    from_lookup = torch.zeros_like(table)
    from_lookup[ids] += by_logits @ table
    return from_lookup, by_logits.T @ hidden
