"""The presets: they are what their names say, and any of them can be built."""

from __future__ import annotations

import pytest
import torch

from inlayer.errors import ConfigError
from inlayer.training import PRESETS, preset
from inlayer.training.decoder import Decoder


def count_parameters(name: str, architecture: str, vocab_size: int, *, tie: bool) -> int:
    decoder = Decoder(preset(name, architecture, vocab_size, tie=tie), device="meta")
    return sum(parameter.numel() for parameter in decoder.parameters())


@pytest.mark.parametrize(("name", "published"), [("base-768", 124_439_808), ("large-1024", 354_823_168)])
def test_the_large_ones_are_the_gpt2_models(name: str, published: int) -> None:
    assert count_parameters(name, "gpt", 50257, tie=True) == published
    assert count_parameters(name, "gpt", 50257, tie=False) == published + 50257 * PRESETS[name]["n_embd"]


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_they_grow(architecture: str) -> None:
    counts = [count_parameters(name, architecture, 256, tie=True) for name in PRESETS]
    assert counts == sorted(counts)
    assert counts[0] < 2e5


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_the_toy_runs(architecture: str) -> None:
    logits = Decoder(preset("toy", architecture, 256), seed=0).logits(torch.zeros(1, 3, dtype=torch.int64))
    assert logits.shape == (1, 3, 256)


def test_settings_stand_against_the_preset() -> None:
    config = preset("small", "llama", 300, n_layer=1, n_kv_head=1, dropout=0.1)
    assert (config.vocab_size, config.n_layer, config.kv_heads, config.dropout) == (300, 1, 1, 0.1)
    assert config.n_embd == PRESETS["small"]["n_embd"]


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'huge'; choose one of toy, small"):
        preset("huge", "gpt", 256)
