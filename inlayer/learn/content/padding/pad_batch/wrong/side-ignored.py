"""Pads on the right, whatever the side."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    longest = max((len(text) for text in texts), default=0)
    ids = torch.full((len(texts), longest), pad_id, dtype=torch.int64)
    mask = torch.zeros((len(texts), longest), dtype=torch.bool)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text, dtype=torch.int64)
        mask[row, : len(text)] = True
    return ids, mask
