"""Defaults: fields missing from a config have the defaults of transformers' config classes."""

from __future__ import annotations

import pytest
from transformers import CONFIG_MAPPING

from inlayer.families import FAMILIES, describe

THEIRS = sorted(FAMILIES.keys() - {"kimi_k2"})  # transformers reads kimi_k2 as deepseek_v3


@pytest.mark.parametrize("model_type", THEIRS)
def test_empty_config_has_the_defaults_of_transformers(model_type: str) -> None:
    assert describe({"model_type": model_type}) == describe(CONFIG_MAPPING[model_type]())


@pytest.mark.parametrize("model_type", THEIRS)
def test_sparse_config_has_the_defaults_of_transformers(model_type: str) -> None:
    """Only sizes are given: head width, tying, base and padding row come from the defaults."""
    sparse = {
        "vocab_size": 200_000,
        "hidden_size": 96,
        "num_attention_heads": 6,
        "max_position_embeddings": 128,
    }
    ours, theirs = (
        describe({"model_type": model_type} | sparse),
        describe(CONFIG_MAPPING[model_type](**sparse)),
    )
    assert ours == theirs
    assert (ours.vocab_size, ours.n_embd) == (200_000, 96)


def test_control_comparison_can_fail() -> None:
    assert describe({"model_type": "qwen3", "head_dim": 64}) != describe(CONFIG_MAPPING["qwen3"]())


def test_kimi_k2_is_deepseek_v3_with_other_sizes() -> None:
    kimi, deepseek = describe({"model_type": "kimi_k2"}), describe({"model_type": "deepseek_v3"})
    assert (kimi.vocab_size, kimi.n_embd, kimi.head.tied) == (163_840, 7_168, False)
    assert (deepseek.vocab_size, deepseek.n_embd, deepseek.head.tied) == (129_280, 7_168, False)
    assert kimi.rotary == deepseek.rotary
