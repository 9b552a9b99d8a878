"""Computes the mask from the ids, which loses a real token with the padding id."""

import torch
from torch import Tensor


def pad_batch(texts: list[list[int]], pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
    longest = max((len(text) for text in texts), default=0)
    rows = []
    for text in texts:
        padding = [pad_id] * (longest - len(text))
        rows.append(text + padding if side == "right" else padding + text)
    ids = torch.tensor(rows, dtype=torch.int64).reshape(len(texts), longest)
    return ids, ids != pad_id
