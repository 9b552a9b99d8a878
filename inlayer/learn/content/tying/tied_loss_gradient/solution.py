"""Task tied_loss_gradient: the two gradients of a tied table."""

import torch
from torch import Tensor


def tied_loss_gradient(table: Tensor, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients (V, D) that the lookup and the head contribute to the table."""
    hidden = table[ids]
    by_logits = (hidden @ table.T).softmax(-1)
    by_logits[torch.arange(len(ids)), targets] -= 1
    by_logits /= len(ids)
    from_head = by_logits.T @ hidden
    from_lookup = torch.zeros_like(table).index_add_(0, ids, by_logits @ table)
    return from_lookup, from_head
