"""Sends the gradient of a hidden state to the row of its target."""

import torch
from torch import Tensor


def tied_loss_gradient(table: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    hidden = table[ids]
    by_logits = (hidden @ table.T).softmax(-1)
    by_logits[torch.arange(len(ids)), targets] -= 1
    by_logits /= len(ids)
    return torch.zeros_like(table).index_add_(0, targets, by_logits @ table), by_logits.T @ hidden
