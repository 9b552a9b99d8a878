"""The table and ids used to show a learner's own tensor: "I love dogs" in the default sample."""

from __future__ import annotations

import torch
from torch import Tensor

import inlayer

__all__ = ["sample"]


def sample() -> tuple[Tensor, Tensor]:
    """Return the table (V, D) in float32, and the ids (1, T)."""
    model = inlayer.load("default")
    table = model.embeddings(torch.arange(model.embeddings.vocab_size)).detach().float()
    return table, torch.tensor([model.tokenizer.encode("I love dogs")])
