"""Returns the total gradient."""

import torch
from torch import Tensor


def tied_loss_gradient(table: Tensor, ids: Tensor, targets: Tensor) -> Tensor:
    hidden = table[ids]
    by_logits = (hidden @ table.T).softmax(-1)
    by_logits[torch.arange(len(ids)), targets] -= 1
    by_logits /= len(ids)
    return (by_logits.T @ hidden).index_add_(0, ids, by_logits @ table)
