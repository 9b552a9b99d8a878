"""Subtracts the padding in front, but still counts padding elsewhere."""

import torch
from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    in_front = mask.int().argmax(dim=1, keepdim=True)  # the index of the first real token
    return (torch.arange(mask.shape[1]) - in_front).masked_fill(~mask, 0)
