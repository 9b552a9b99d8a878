"""Pads the input lists in place."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    longest = max((len(text) for text in texts), default=0)
    mask = torch.zeros((len(texts), longest), dtype=torch.bool)
    for row, text in enumerate(texts):
        begin = 0 if side == "right" else longest - len(text)
        mask[row, begin : begin + len(text)] = True
        fill = [pad_id] * (longest - len(text))
        if side == "right":
            text.extend(fill)
        else:
            text[:0] = fill
    return torch.tensor(texts, dtype=torch.int64), mask
