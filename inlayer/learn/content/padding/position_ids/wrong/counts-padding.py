"""Numbers the places of the rectangle: a left-padded text begins late."""

import torch
from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return torch.arange(mask.shape[1]).expand(mask.shape)
