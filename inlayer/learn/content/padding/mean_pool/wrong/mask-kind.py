"""Uses the mask as an index, which works for True and False but not for 1 and 0."""

import torch
from torch import Tensor


def mean_pool(hidden: Tensor, mask: Tensor) -> Tensor:
    means = []
    for rows, real in zip(hidden, mask):
        kept = rows[real]
        means.append(kept.sum(dim=0) / max(len(kept), 1))
    return torch.stack(means)
