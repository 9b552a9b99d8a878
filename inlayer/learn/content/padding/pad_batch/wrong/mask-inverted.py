"""Marks the padding instead of the real tokens."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    longest = max((len(text) for text in texts), default=0)
    ids = torch.full((len(texts), longest), pad_id, dtype=torch.int64)
    is_padding = torch.ones((len(texts), longest), dtype=torch.bool)
    for row, text in enumerate(texts):
        begin = 0 if side == "right" else longest - len(text)
        ids[row, begin : begin + len(text)] = torch.tensor(text, dtype=torch.int64)
        is_padding[row, begin : begin + len(text)] = False
    return ids, is_padding
