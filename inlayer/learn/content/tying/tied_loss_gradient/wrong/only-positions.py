"""Returns the gradient of the hidden states."""

import torch
from torch import Tensor


def tied_loss_gradient(table: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    hidden = table[ids]
    by_logits = (hidden @ table.T).softmax(-1)
    by_logits[torch.arange(len(ids)), targets] -= 1
    by_logits /= len(ids)
    return by_logits @ table, by_logits.T @ hidden
