"""Truncates all texts to the length of the shortest."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    shortest = min(len(text) for text in texts)
    ids = torch.tensor([text[:shortest] for text in texts], dtype=torch.int64)
    return ids, torch.ones(ids.shape, dtype=torch.bool)
