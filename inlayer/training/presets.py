"""Presets: the sizes of a decoder by name, from one that learns in seconds to those of the smallest real models.

- the vocabulary is not among them: it belongs to the tokenizer
- base-768 and large-1024 as gpt are GPT-2 and GPT-2 medium in all sizes
- not here: learning rates and the like, which go with the data
Checked against the published parameter counts in tests/training/test_presets.py.
"""

from __future__ import annotations

from typing import Any, TypedDict

from inlayer.errors import ConfigError
from inlayer.training.decoder import DecoderConfig

__all__ = ["PRESETS", "Preset", "preset", "sizes_of"]


class Preset(TypedDict):
    """Sizes of a decoder; `n_kv_head` is llama's, gpt has as many as n_head."""

    n_embd: int
    n_layer: int
    n_head: int
    n_kv_head: int
    block_size: int


PRESETS: dict[str, Preset] = {
    "toy": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_kv_head": 2, "block_size": 64},
    "small": {"n_embd": 128, "n_layer": 4, "n_head": 4, "n_kv_head": 2, "block_size": 128},
    "medium-256": {"n_embd": 256, "n_layer": 6, "n_head": 8, "n_kv_head": 4, "block_size": 256},
    "medium-512": {"n_embd": 512, "n_layer": 8, "n_head": 8, "n_kv_head": 4, "block_size": 512},
    "base-768": {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_kv_head": 4, "block_size": 1024},
    "large-1024": {"n_embd": 1024, "n_layer": 24, "n_head": 16, "n_kv_head": 4, "block_size": 1024},
}


def preset(name: str, architecture: str, vocab_size: int, **settings: Any) -> DecoderConfig:
    """The config of a preset; `settings` are other fields of DecoderConfig, or sizes in place of the preset's."""
    sizes = sizes_of(name, architecture)
    return DecoderConfig(**{"architecture": architecture, "vocab_size": vocab_size, **sizes, **settings})


def sizes_of(name: str, architecture: str) -> dict[str, Any]:
    """The fields of DecoderConfig that a preset says for an architecture."""
    if name not in PRESETS:
        raise ConfigError(f"unknown preset {name!r}; choose one of {', '.join(PRESETS)}")
    sizes: dict[str, Any] = {**PRESETS[name]}
    if architecture == "gpt":
        del sizes["n_kv_head"]
    return sizes
