"""The rows and ids that a learner's own tensor is shown with: the default sample's walk of "I love dogs"."""

from __future__ import annotations

import torch
from torch import Tensor

import inlayer

__all__ = ["sample"]


def sample() -> tuple[Tensor, Tensor]:
    """The table (V, D) in float32, and the ids (1, T)."""
    model = inlayer.load("default")
    assert model.tokenizer is not None
    table = model.embeddings(torch.arange(model.embeddings.vocab_size)).detach().float()
    return table, torch.tensor([model.tokenizer.encode("I love dogs")])
