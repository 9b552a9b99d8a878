"""Skips texts without tokens, so rows no longer match texts."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    texts = [text for text in texts if text]
    longest = max((len(text) for text in texts), default=0)
    ids = torch.full((len(texts), longest), pad_id, dtype=torch.int64)
    mask = torch.zeros((len(texts), longest), dtype=torch.bool)
    for row, text in enumerate(texts):
        begin = 0 if side == "right" else longest - len(text)
        ids[row, begin : begin + len(text)] = torch.tensor(text, dtype=torch.int64)
        mask[row, begin : begin + len(text)] = True
    return ids, mask
