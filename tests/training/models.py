"""Small decoders with all values changed from their initialization, and ids for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from inlayer.training.config import DecoderConfig
from inlayer.training.decoder import Decoder

VOCABULARY = 96


def make_config(architecture: str, **settings: Any) -> DecoderConfig:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "block_size": 24}
    return DecoderConfig(**{"architecture": architecture, **sizes, **settings})


def make_decoder(architecture: str, *, seed: int = 0, **settings: Any) -> Decoder:
    """A decoder as if trained: biases are not zero, norms not one, attention not uniform."""
    decoder = Decoder(make_config(architecture, **settings), seed=seed).eval()
    random = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=random))
            if name == "embeddings.token_embedding.weight" and decoder.embeddings.padding_idx is not None:
                parameter[decoder.embeddings.padding_idx] = 0
    return decoder


def make_ids(batch: int = 3, tokens: int = 20, *, seed: int = 0) -> Tensor:
    return torch.randint(0, VOCABULARY, (batch, tokens), generator=torch.Generator().manual_seed(seed))
