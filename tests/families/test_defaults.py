"""Defaults: fields missing from a config have the defaults of transformers' config classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from transformers import CONFIG_MAPPING

import inlayer.families
from inlayer.families import FAMILIES, LayerSpec, describe

# transformers reads kimi_k2 as deepseek_v3, and the flat configs of Qwen2-VL as nested ones; some it does not have
OTHER = {"kimi_k2", "qwen2_vl", "qwen2_5_vl", "deepseek_v41", "deepseek_v41_text", "longcat_flash_ngram"}
THEIRS = sorted(FAMILIES.keys() - OTHER)


def without_layers(config: object) -> LayerSpec:
    """The spec without the list of layers: their config classes fill in `layer_types`, which files rarely lack."""
    spec = describe(config)
    return replace(spec, rotary=spec.rotary and replace(spec.rotary, layer_types=None))


@pytest.mark.parametrize("model_type", THEIRS)
def test_empty_config_has_the_defaults_of_transformers(model_type: str) -> None:
    assert without_layers({"model_type": model_type}) == without_layers(CONFIG_MAPPING[model_type]())


def test_every_default_is_a_field_that_is_read() -> None:
    """A misspelled field would be a default that nothing reads."""
    files = Path(inlayer.families.__file__).parent.glob("*.py")
    readers = "".join(path.read_text() for path in files if path.name != "model_types.py").replace('"', "'")
    readers += repr([replace(family, defaults={}) for family in FAMILIES.values()])  # fields that traits name
    defaults = {name for family in FAMILIES.values() for name in family.defaults}
    assert {name for name in defaults | {"scale_att"} if f"'{name}'" not in readers} == {"scale_att"}  # the control


# Their config classes reject these sizes (Mamba heads, XLNet's length), derive more from them, or ours does (GPT-J).
NOT_SPARSE = {
    "bailing_hybrid", "bamba", "beam", "blt", "codegen", "gptj", "granitemoehybrid", "mamba2", "neomme", "xlnet",
    "t5gemma", "youtu",
}  # fmt: skip


@pytest.mark.parametrize("model_type", sorted(set(THEIRS) - NOT_SPARSE))
def test_sparse_config_has_the_defaults_of_transformers(model_type: str) -> None:
    """Only sizes are given: head width, tying, base and padding row come from the defaults."""
    sparse = {
        "vocab_size": 200_000,
        "hidden_size": 96,
        "num_attention_heads": 6,
        "max_position_embeddings": 128,
    }
    ours, theirs = (
        without_layers({"model_type": model_type} | sparse),
        without_layers(CONFIG_MAPPING[model_type](**sparse)),
    )
    assert ours == theirs
    assert (ours.vocab_size, ours.n_embd) == (200_000 + FAMILIES[model_type].input_only_rows, 96)


LAYERS: dict[str, dict[str, object]] = {name: {} for name, family in FAMILIES.items() if family.full_attention_interval}
LAYERS |= {"lfm2": {"full_attn_idxs": [2, 5]}, "granitemoehybrid": {"position_embedding_type": "rope"}}
LAYERS |= {"gemma4_text": {"layer_types": ["sliding_attention"] * 7}}  # the last one is full all the same


@pytest.mark.parametrize("model_type", LAYERS)
def test_layer_types_that_a_config_does_not_list(model_type: str) -> None:
    settings = LAYERS[model_type] | {"num_hidden_layers": 7}
    ours = describe({"model_type": model_type} | settings).rotary
    theirs = describe(CONFIG_MAPPING[model_type](**settings)).rotary
    assert ours is not None
    assert theirs is not None
    assert ours.layer_types is not None
    assert theirs.layer_types is not None
    if isinstance(ours.rope_parameters, dict):
        assert ours.layer_types == theirs.layer_types
    rotated = [name is not None for name in ours.layer_types]
    assert rotated == [name is not None for name in theirs.layer_types]
    assert len(rotated) == 7


@pytest.mark.parametrize("model_type", ["apertus", "cwm", "ministral3", "mistral4", "gpt_oss", "qwen3"])
def test_base_beside_missing_rotary_settings(model_type: str) -> None:
    """It is ignored where the default settings of a config class have a base of their own."""
    given = {"rope_theta": 31_000.0, "rope_scaling": None}
    assert describe({"model_type": model_type} | given) == describe(CONFIG_MAPPING[model_type].from_dict(dict(given)))


def test_published_rotary_settings_of_deepseek_v4() -> None:
    """YaRN is for compressed layers only, and does not multiply cos and sin."""
    yarn = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1}
    given = {"rope_theta": 10000, "compress_rope_theta": 160000, "max_position_embeddings": 1048576,
             "num_hidden_layers": 4, "compress_ratios": [0, 0, 4, 128]}  # fmt: skip
    ours = describe({"model_type": "deepseek_v4", "rope_scaling": yarn} | given).rotary
    theirs = describe(CONFIG_MAPPING["deepseek_v4"].from_dict({"rope_scaling": dict(yarn)} | given)).rotary
    assert ours == theirs
    assert ours is not None
    assert isinstance(ours.rope_parameters, dict)
    assert ours.rope_parameters["compress"].scaling is not None
    assert ours.layer_types == ("main", "main", "compress", "compress")


def test_control_comparison_can_fail() -> None:
    assert describe({"model_type": "qwen3", "head_dim": 64}) != describe(CONFIG_MAPPING["qwen3"]())


def test_kimi_k2_is_deepseek_v3_with_other_sizes() -> None:
    kimi, deepseek = describe({"model_type": "kimi_k2"}), describe({"model_type": "deepseek_v3"})
    assert (kimi.vocab_size, kimi.n_embd, kimi.head.tied) == (163_840, 7_168, False)
    assert (deepseek.vocab_size, deepseek.n_embd, deepseek.head.tied) == (129_280, 7_168, False)
    assert kimi.rotary == deepseek.rotary
