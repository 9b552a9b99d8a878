"""Numbers all columns, so a left-padded text starts late."""

import torch
from torch import Tensor


def position_ids(mask: Tensor) -> Tensor:
    return torch.arange(mask.shape[1]).expand(mask.shape)
