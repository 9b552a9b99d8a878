"""GGUF metadata -> config: the same layer as from the model's config.json."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import inlayer
from inlayer.embeddings import Embeddings
from inlayer.errors import ConfigError, InputError
from inlayer.families import FAMILIES, LayerSpec, describe
from inlayer.families.gguf_config import ARCHITECTURES, _rotated_fraction, config_from_gguf
from inlayer.positions import Llama3Scaling, LongRopeScaling, RotaryPositions
from tests.checkpoint.make_gguf import write_gguf
from tests.shared_data import shared


def single(value: float) -> float:
    """A number rounded to float32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def said(architecture: str, **values: object) -> dict[str, object]:
    """Metadata; double underscores stand for dots, floats are rounded to float32."""
    stored = {
        f"{architecture}.{name.replace('__', '.')}": single(value) if isinstance(value, float) else value
        for name, value in values.items()
    }
    return {"general.architecture": architecture, **stored}


def shapes(rows: int, width: int, *others: str) -> dict[str, tuple[int, ...]]:
    return {"token_embd.weight": (rows, width)} | dict.fromkeys(others, (rows, width))


def layer(spec: LayerSpec) -> LayerSpec:
    """A spec without the fields that a GGUF does not have: initialization and training."""
    return dataclasses.replace(spec, init_std=0.0, dropout=0.0)


CONVERTED: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("converted.json").read_text())
# What a converted file does not have: the original length, factors multiplied into the rows, a head that was not
# converted, which layers have no positions or slide, the fraction (0.334) that gives the number of rotated channels.
NOT_STORED = {
    "bamba": {"rotary"}, "bitnet": {"head"}, "eurobert": {"head"}, "falcon": {"block_size"},
    "falcon_h1": {"scale"}, "jina_embeddings_v3": {"block_size"}, "laguna": {"rotary"}, "lfm2_moe": {"rotary"},
    "mimo_v2_flash": {"rotary"}, "mpt": {"head"}, "mt5": {"head"}, "nomic_bert": {"head"},
}  # fmt: skip


def converted_spec(name: str, **changes: object) -> LayerSpec:
    """The layer of a file that llama.cpp's converter wrote (record_gguf.py), with changed metadata."""
    entry = CONVERTED[name]
    tensors = {tensor: tuple(shape) for tensor, shape in entry["shapes"].items()}
    return describe(config_from_gguf(entry["metadata"] | changes, tensors, entry["factors"]))


def differences(ours: LayerSpec, theirs: LayerSpec) -> set[str]:
    names = [field.name for field in dataclasses.fields(LayerSpec) if field.name != "family"]
    return {name for name in names if getattr(layer(ours), name) != getattr(layer(theirs), name)}


@pytest.mark.parametrize("name", CONVERTED)
def test_converted_file_has_the_layer_of_its_config(name: str):
    assert differences(converted_spec(name), describe(CONVERTED[name]["config"])) <= NOT_STORED.get(name, set())


@pytest.mark.parametrize(
    ("name", "key", "changed", "field"),
    [
        ("qwen2_vl", "qwen2vl.rope.dimension_sections", [3, 3, 2, 0], "rotary"),
        ("exaone4", "exaone4.attention.sliding_window_pattern", [True, False] * 2, "rotary"),
        ("modernbert", "modern-bert.rope.freq_base_swa", 5e4, "rotary"),
        ("granitemoehybrid", "granitehybrid.embedding_scale", 2.0, "input_multiplier"),
        ("granitemoehybrid", "granitehybrid.rope.scaling.finetuned", True, "rotary"),
        ("smollm3", "smollm3.block_count", 8, "rotary"),
        ("deepseek_v32", "deepseek32.rope.dimension_count", 8, "rotary"),
        ("deepseek_v4", "deepseek4.attention.compress_rope_freq_base", 5e4, "rotary"),
        ("deepseek_v4", "deepseek4.attention.compress_ratios", [0, 128, 128, 128], "rotary"),
        ("deepseek_v4", "deepseek4.hyper_connection.count", 2, "n_streams"),
        ("laguna", "laguna.rope.dimension_count_swa", 8, "rotary"),
    ],
)
def test_control_changed_metadata_changes_the_layer(name: str, key: str, changed: object, field: str):
    assert CONVERTED[name]["metadata"][key] != changed
    assert field in differences(converted_spec(name, **{key: changed}), describe(CONVERTED[name]["config"]))


def test_gemma4_layers_have_their_types():
    spec = converted_spec("gemma4_text")
    assert spec.rotary is not None
    assert spec.rotary.layer_types == describe(CONVERTED["gemma4_text"]["config"]).rotary.layer_types
    with pytest.raises(ConfigError, match="has 3 entries, not one for each block"):
        converted_spec("gemma4_text", **{"gemma4.attention.sliding_window_pattern": [1, 0, 1]})


def test_hybrid_layers_without_key_value_heads_have_no_positions():
    spec = converted_spec("lfm2_moe", **{"lfm2moe.attention.head_count_kv": [0, 2, 0, 2]})
    assert spec == describe(CONVERTED["lfm2_moe"]["config"])


def test_laguna_does_not_always_store_which_layers_slide():
    spec, theirs = converted_spec("laguna"), describe(CONVERTED["laguna"]["config"])
    assert dataclasses.replace(spec.rotary, layer_types=theirs.rotary.layer_types) == theirs.rotary
    with pytest.raises(InputError, match="no list of layer types"):
        Embeddings.from_config(spec).rotary(torch.arange(3), layer=0)


@pytest.mark.parametrize("types", [["sliding_attention", "full_attention"], ["full_attention"]])
def test_layer_types_are_read_from_strings(tmp_path: Path, types: list[str]):
    values = {"context_length": 64, "attention.head_count": 4, "attention.sliding_window": 8,
              "rope.dimension_count_swa": 4, "attention.layer_types": types}  # fmt: skip
    table = {"token_embd.weight": (np.ones((9, 32), np.float32), None)}
    prefixed = {f"laguna.{name}": value for name, value in values.items()}
    path = write_gguf(tmp_path / "x.gguf", architecture="laguna", values=prefixed, tensors=table)
    layer = inlayer.load(path).embeddings
    for number, name in enumerate(types):
        cos, _ = layer.rotary(torch.arange(3), layer=number)
        assert cos.shape == (3, 4 if name == "sliding_attention" else 8)


def test_mistral4_stores_the_rotated_part_of_its_heads():
    yarn = {"factor": 128.0, "original_max_position_embeddings": 8192, "mscale": 1.0, "mscale_all_dim": 1.0}
    config = {"model_type": "mistral4", "head_dim": 32, "qk_rope_head_dim": 16, "max_position_embeddings": 64,
              "rope_parameters": yarn | {"rope_type": "yarn", "rope_theta": 17000.0}}  # fmt: skip
    stored = {"rope.scaling.type": "yarn", "rope.scaling.factor": 128.0, "rope.scaling.original_context_length": 8192,
              "rope.freq_base": 17000.0, "rope.dimension_count": 16, "rope.scaling.yarn_log_multiplier": 0.1,
              "context_length": 64, "attention.key_length": 32}  # fmt: skip
    metadata = {"general.architecture": "mistral4"} | {f"mistral4.{key}": value for key, value in stored.items()}
    ours = Embeddings.from_config(config_from_gguf(metadata, shapes(99, 64), {})).rotary(torch.arange(60))
    theirs = Embeddings.from_config(config, device="meta").rotary(torch.arange(60))
    assert torch.equal(ours[0], theirs[0])
    assert torch.equal(ours[1], theirs[1])


def test_every_architecture_exists_in_llama_cpp_and_in_our_families():
    constants = pytest.importorskip("gguf.constants")
    converted = {entry["metadata"]["general.architecture"] for entry in CONVERTED.values()}
    assert set(ARCHITECTURES) <= set(constants.MODEL_ARCH_NAMES.values()) | converted
    assert set(ARCHITECTURES.values()) <= set(FAMILIES)


# A model's config.json beside what its converter writes. Sizes are real ones or small.
PAIRS = {
    "mistral": (
        {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "num_attention_heads": 32,
         "max_position_embeddings": 32768, "rope_theta": 1e6, "tie_word_embeddings": False},
        said("llama", context_length=32768, attention__head_count=32, rope__dimension_count=128, rope__freq_base=1e6),
        shapes(32000, 4096, "output.weight"),
    ),
    "smollm2": (
        {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "num_attention_heads": 9, "pad_token_id": 2,
         "max_position_embeddings": 8192, "rope_theta": 100000, "tie_word_embeddings": True},
        said("llama", context_length=8192, attention__head_count=9, rope__dimension_count=64, rope__freq_base=1e5)
        | {"tokenizer.ggml.padding_token_id": 2},
        shapes(49152, 576),
    ),
    "gpt2": (
        {"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_positions": 1024},
        said("gpt2", context_length=1024, embedding_length=768, attention__head_count=12),
        shapes(50257, 768) | {"position_embd.weight": (1024, 768)},
    ),
    "starcoder": (
        {"model_type": "gpt_bigcode", "vocab_size": 49152, "n_embd": 2048, "n_head": 16, "n_positions": 8192},
        said("starcoder", context_length=8192, attention__head_count=16),
        shapes(49152, 2048),
    ),
    "bert": (
        {"model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_attention_heads": 12,
         "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0},
        said("bert", context_length=512, attention__head_count=12, attention__layer_norm_epsilon=1e-12)
        | {"tokenizer.ggml.padding_token_id": 0},
        shapes(30522, 384) | {"position_embd.weight": (512, 384), "token_types.weight": (2, 384)},
    ),
    "pythia": (
        {"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 768, "num_attention_heads": 12,
         "max_position_embeddings": 2048, "rotary_pct": 0.25, "rotary_emb_base": 10000, "tie_word_embeddings": False},
        said("gptneox", context_length=2048, attention__head_count=12, rope__dimension_count=16),
        shapes(50304, 768, "output.weight"),
    ),
    "bloom": (
        {"model_type": "bloom", "vocab_size": 250880, "hidden_size": 1024, "n_head": 16, "layer_norm_epsilon": 1e-5},
        said("bloom", context_length=2048, attention__head_count=16, attention__layer_norm_epsilon=1e-5),
        shapes(250880, 1024),
    ),
    "qwen2.5 with yarn": (
        {"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "num_attention_heads": 28,
         "max_position_embeddings": 32768, "rope_theta": 1e6, "tie_word_embeddings": False,
         "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
        said("qwen2", context_length=32768, attention__head_count=28, rope__freq_base=1e6, rope__scaling__type="yarn",
             rope__scaling__factor=4.0, rope__scaling__original_context_length=32768),
        shapes(152064, 3584, "output.weight"),
    ),
    "qwen3": (
        {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128,
         "max_position_embeddings": 40960, "rope_theta": 1e6, "tie_word_embeddings": True},
        said("qwen3", context_length=40960, attention__head_count=16, attention__key_length=128, rope__freq_base=1e6),
        shapes(151936, 1024),
    ),
    "gemma2": (
        {"model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304, "num_attention_heads": 8, "head_dim": 256,
         "max_position_embeddings": 8192, "pad_token_id": 0, "final_logit_softcapping": 30.0},
        said("gemma2", context_length=8192, attention__head_count=8, attention__key_length=256,
             final_logit_softcapping=30.0) | {"tokenizer.ggml.padding_token_id": 0},
        shapes(256000, 2304),
    ),
    "gemma3": (
        {"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 2560, "num_attention_heads": 8,
         "head_dim": 256, "max_position_embeddings": 131072, "pad_token_id": 0, "rope_theta": 1e6,
         "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        said("gemma3", context_length=131072, attention__head_count=8, attention__key_length=256, rope__freq_base=1e6,
             rope__scaling__type="linear", rope__scaling__factor=8.0) | {"tokenizer.ggml.padding_token_id": 0},
        shapes(262208, 2560),
    ),
    "phi2": (
        {"model_type": "phi", "vocab_size": 51200, "hidden_size": 2560, "num_attention_heads": 32,
         "max_position_embeddings": 2048, "partial_rotary_factor": 0.4, "tie_word_embeddings": False},
        said("phi2", context_length=2048, attention__head_count=32, rope__dimension_count=32),
        shapes(51200, 2560, "output.weight"),
    ),
    "command-r": (
        {"model_type": "cohere", "vocab_size": 256000, "hidden_size": 8192, "num_attention_heads": 64,
         "max_position_embeddings": 8192, "rope_theta": 8e6, "logit_scale": 0.0625, "pad_token_id": 0},
        said("command-r", context_length=8192, attention__head_count=64, rope__freq_base=8e6, logit_scale=0.0625)
        | {"tokenizer.ggml.padding_token_id": 0},
        shapes(256000, 8192),
    ),
    "granite": (
        {"model_type": "granite", "vocab_size": 49155, "hidden_size": 2048, "num_attention_heads": 32,
         "max_position_embeddings": 131072, "rope_theta": 5e6, "embedding_multiplier": 12.0, "logits_scaling": 8.0,
         "pad_token_id": 0, "tie_word_embeddings": True},
        said("granite", context_length=131072, attention__head_count=32, rope__freq_base=5e6, embedding_scale=12.0,
             logit_scale=8.0) | {"tokenizer.ggml.padding_token_id": 0},
        shapes(49155, 2048),
    ),
    "t5": (
        {"model_type": "t5", "vocab_size": 32128, "d_model": 512, "num_heads": 8, "tie_word_embeddings": True},
        said("t5", context_length=512, attention__head_count=8),
        shapes(32128, 512),
    ),
    "flan-t5": (
        {"model_type": "t5", "vocab_size": 32128, "d_model": 512, "num_heads": 6, "tie_word_embeddings": False},
        said("t5", context_length=512, attention__head_count=6),
        shapes(32128, 512, "output.weight"),
    ),
    "glm4": (
        {"model_type": "glm4", "vocab_size": 151552, "hidden_size": 4096, "num_attention_heads": 32, "head_dim": 128,
         "max_position_embeddings": 32768, "partial_rotary_factor": 0.5, "pad_token_id": 151329,
         "tie_word_embeddings": False},
        said("glm4", context_length=32768, attention__head_count=32, rope__dimension_count=64)
        | {"tokenizer.ggml.padding_token_id": 151329},
        shapes(151552, 4096, "output.weight"),
    ),
    "gpt-oss": (
        {"model_type": "gpt_oss", "vocab_size": 201088, "hidden_size": 2880, "num_attention_heads": 64, "head_dim": 64,
         "max_position_embeddings": 131072, "rope_theta": 150000, "tie_word_embeddings": False,
         "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                          "original_max_position_embeddings": 4096}},
        said("gpt-oss", context_length=131072, attention__head_count=64, attention__key_length=64,
             rope__freq_base=150000.0, rope__scaling__type="yarn", rope__scaling__factor=32.0,
             rope__scaling__original_context_length=4096),
        shapes(201088, 2880, "output.weight"),
    ),
    "phi3": (
        {"model_type": "phi3", "vocab_size": 32064, "hidden_size": 64, "num_attention_heads": 2,
         "max_position_embeddings": 131072, "original_max_position_embeddings": 4096, "pad_token_id": 32000,
         "tie_word_embeddings": False,
         "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 16, "long_factor": [2.0] * 16}},
        said("phi3", context_length=131072, attention__head_count=2, rope__dimension_count=32,
             rope__scaling__original_context_length=4096, rope__scaling__attn_factor=1.19)
        | {"tokenizer.ggml.padding_token_id": 32000},
        shapes(32064, 64, "output.weight"),
    ),
}  # fmt: skip
FACTORS = {"phi3": {"rope_factors_short.weight": [1.0] * 16, "rope_factors_long.weight": [2.0] * 16}}


@pytest.mark.parametrize("name", PAIRS)
def test_layer_matches_the_original_config(name: str):
    config, metadata, tensors = PAIRS[name]
    ours = config_from_gguf(metadata, tensors, FACTORS.get(name, {}))
    assert layer(describe(ours)) == layer(describe(config))


@pytest.mark.parametrize("name", ["granite", "smollm2", "bert"])
def test_control_comparison_can_fail(name: str):
    config, metadata, tensors = PAIRS[name]
    changed = {key: value * 2 if isinstance(value, float) else value for key, value in metadata.items()}
    other = config_from_gguf(changed, tensors | {"output.weight": tensors["token_embd.weight"]}, {})
    assert layer(describe(other)) != layer(describe(config))


def test_deepseek_v3():
    config = json.loads(shared("data", "configs", "DeepSeek-V3.config.json").read_text("utf-8"))
    metadata = said(
        "deepseek2", context_length=163840, attention__head_count=128, attention__key_length=192,
        rope__dimension_count=64, rope__freq_base=10000.0, rope__scaling__type="yarn", rope__scaling__factor=40.0,
        rope__scaling__original_context_length=4096, rope__scaling__yarn_log_multiplier=0.1,
    )  # fmt: skip
    ours = describe(config_from_gguf(metadata, shapes(129280, 7168, "output.weight"), {}))
    theirs = describe(config)
    assert layer(ours) == layer(theirs)


def test_llama_3_1_factors():
    """Angles from the stored divisors equal those of the formula within two units in the last place."""
    config = json.loads(shared("data", "configs", "Llama-3.1-8B-Instruct.config.json").read_text("utf-8"))
    theirs = describe(config).rotary
    assert theirs is not None
    scaling = theirs.rope_parameters.scaling
    assert isinstance(scaling, Llama3Scaling)
    metadata = said(
        "llama", context_length=131072, attention__head_count=32, rope__dimension_count=128, rope__freq_base=5e5
    )
    factors = {"rope_freqs.weight": llama3_factors(scaling, 128, 5e5)}
    ours = describe(config_from_gguf(metadata, shapes(128256, 4096, "output.weight"), factors)).rotary
    assert ours is not None
    assert isinstance(ours.rope_parameters.scaling, LongRopeScaling)
    positions = torch.arange(64)[None]
    for mine, other in zip(
        *(RotaryPositions(spec.head_dim, spec.rope_parameters)(positions) for spec in (ours, theirs)), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=0, atol=2e-5)
    plain = describe(config_from_gguf(metadata, shapes(128256, 4096, "output.weight"), {})).rotary
    assert plain is not None
    assert plain.rope_parameters.scaling is None  # the control: without the tensor, nothing is stretched


def llama3_factors(scaling: Llama3Scaling, dim: int, theta: float) -> list[float]:
    """The factors as llama.cpp's converter computes them."""
    factors = []
    for place in range(0, dim, 2):
        wavelength = 2 * math.pi * theta ** (place / dim)
        low, high = (
            scaling.original_max_position_embeddings / factor
            for factor in (scaling.low_freq_factor, scaling.high_freq_factor)
        )
        if wavelength < high:
            factors.append(1.0)
        elif wavelength > low:
            factors.append(scaling.factor)
        else:
            share = (scaling.original_max_position_embeddings / wavelength - scaling.low_freq_factor) / (
                scaling.high_freq_factor - scaling.low_freq_factor
            )
            factors.append(1 / ((1 - share) / scaling.factor + share))
    return [single(factor) for factor in factors]


def test_factors_of_one_change_nothing():
    config, metadata, tensors = PAIRS["mistral"]
    ours = config_from_gguf(metadata, tensors, {"rope_freqs.weight": [1.0] * 64})
    assert layer(describe(ours)) == layer(describe(config))


def test_rotated_fraction_gives_back_the_number_of_channels():
    for head in (*range(2, 65), 80, 96, 112, 128, 192, 256, 512):
        assert all(int(head * _rotated_fraction(rotated, head)) == rotated for rotated in range(2, head + 1, 2))
    assert any(
        int(head * (rotated / head)) != rotated for head in range(2, 65) for rotated in range(2, head, 2)
    )  # control


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("rwkv7", "rwkv7"), ("openelm", "openelm"), ("clip", "clip"),
        # Families of ours whose metadata is not read: phimoe would get default sizes and no LongRoPE.
        ("phimoe", "phimoe (GGUF)"), ("gptj", "gptj (GGUF)"),
    ],
)  # fmt: skip
def test_other_architectures_are_named_but_not_described(architecture: str, model_type: str):
    config = config_from_gguf({"general.architecture": architecture}, shapes(8, 8), {})
    assert config == {"model_type": model_type, "vocab_size": 8, "hidden_size": 8, "tie_word_embeddings": True}
    with pytest.raises(ConfigError, match=f"unknown model type {re.escape(repr(model_type))}"):
        describe(config)


@pytest.mark.parametrize("architecture", ["", None, 3])
def test_file_without_an_architecture_has_no_config(architecture: object):
    assert config_from_gguf({"general.architecture": architecture}, shapes(8, 8), {}) is None


def test_file_without_a_table_has_no_config():
    assert config_from_gguf(PAIRS["mistral"][1], {}, {}) is None


def test_padding_id_outside_the_table_is_ignored():
    _, metadata, tensors = PAIRS["mistral"]
    ours = config_from_gguf(metadata | {"tokenizer.ggml.padding_token_id": 32000}, tensors, {})
    assert describe(ours).padding_idx is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama.context_length": None}, "llama.context_length is None"),
        ({"llama.context_length": "many"}, "llama.context_length is 'many'"),
        ({"llama.attention.head_count": 0}, "llama.attention.head_count is 0"),
        ({"llama.rope.dimension_count": 200}, "rotates 200 of a head's 128 channels"),
        (
            {"llama.rope.dimension_count": 63},
            "rotates 63 of a head's 128 channels; expected an even number in 2..128",
        ),
        ({"llama.attention.key_length": 0}, "llama.attention.key_length is 0"),
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 0.0}, "rope.scaling.factor is 0.0"),
        (
            {
                "llama.rope.scaling.type": "yarn",
                "llama.rope.scaling.factor": 2.0,
                "llama.rope.scaling.yarn_log_multiplier": "x",
            },
            "yarn_log_multiplier is 'x'; it must be a number",
        ),
        ({"llama.rope.freq_base": "x"}, "rope_theta"),
        ({"llama.rope.scaling.type": "linear"}, "without a factor"),
        ({"llama.rope.dimension_sections": 7, "llama.rope.scaling.type": "spiral"}, "'spiral'; supported types:"),
    ],
)
def test_invalid_metadata_is_an_error(changes: dict[str, object], message: str):
    _, metadata, tensors = PAIRS["mistral"]
    with pytest.raises(ConfigError, match=message):
        describe(config_from_gguf(metadata | changes, tensors, {}))
