"""Generic: unknown types open only if config and tensors are ordinary, and always with a label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import inlayer
from inlayer.errors import ConfigError
from inlayer.families import describe
from inlayer.families.generic import ASSUMED
from tests.families.survey import save_tiny


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small Llama under a name that nobody knows."""
    torch.manual_seed(0)
    save_tiny("llama", "causal", str(tmp_path))
    change(tmp_path, model_type="brand_new")
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def add_tensor(folder: Path, name: str, tensor: torch.Tensor) -> None:
    path = folder / "model.safetensors"
    save_file(load_file(path) | {name: tensor}, path)


def test_label_is_in_the_model_the_report_and_the_walk(folder: Path) -> None:
    model = inlayer.load(folder)
    assert model.spec is not None
    assert model.spec.is_generic
    assert model.spec.family == "generic ('brand_new')"
    assert ASSUMED in model.note
    report = inlayer.inspect(folder)
    assert report.table.model_type == model.spec.family
    assert [finding.severity for finding in report.findings if finding.code == "generic-model-type"] == ["note"]
    assert ASSUMED in report.description
    trace = inlayer.walk("12", model=inlayer.load(folder), tokenizer=inlayer.ByteTokenizer())
    assert (trace.family, ASSUMED in trace.note) == (model.spec.family, True)


def test_known_family_has_no_label(folder: Path) -> None:
    change(folder, model_type="llama")
    model = inlayer.load(folder)
    assert not model.spec.is_generic
    assert ASSUMED not in model.note


def test_config_alone_is_not_enough(folder: Path) -> None:
    """Without tensor names there is nothing to check, so nothing is assumed."""
    with pytest.raises(ConfigError, match="unknown model type 'brand_new'"):
        describe(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"embedding_multiplier": 12.0},
        {"mup_enabled": True},
        {"scale_emb": 2},
        {"use_embedding_norm": True},
        {"ngram_vocab_size": 1000},
        {"vocab_size_per_layer_input": 10, "hidden_size_per_layer_input": 8},
        {"rope_parameters": None},
        {"rope_parameters": {"rope_type": "magic"}},
        {"rope_parameters": {"rope_theta": 1e4, "mrope_section": [2, 3, 3]}},
        {"rope_parameters": {"rope_theta": 1e4, "interleaved": True}},
        {"is_neox_style": True},
        {"nope_layers": [1, 3]},
        {"input_scale": 8},
        {"multiply_by_sqrt_d": True},
        {"layer_types": ["nope_full_attention"] * 4},
        {"num_attention_heads": None},
        {"layer_types": ["full_attention", "linear_attention"]},
        {"layer_types": 7},
        {"position_embedding_type": "alibi"},
        {"hidden_act": "gelu_pytorch_tanh"},
        {"model_type": None},
        {"model_type": ["brand_new"]},
        {"vocab_size": "99"},
        {"vocab_size": 120},  # of 99 rows
        {"hidden_multiplier": 12.0},
        {"scale_by_hidden_dim": True},
        {"swa_theta": 1e4},
        {"local_base_freq": 1e4},
        {"hidden_factor": 8},
        {"is_encoder_decoder": True},
    ],
    ids=str,
)
def test_special_configs_are_refused(folder: Path, fields: dict[str, Any]) -> None:
    change(folder, **fields)
    with pytest.raises(ConfigError) as caught:
        inlayer.load(folder).embeddings  # noqa: B018
    assert "\n" not in str(caught.value)
    assert inlayer.load(folder).table.rows([1]).shape == (1, 64)  # rows can still be read


@pytest.mark.parametrize("whole", [{}, {"vision_config": {}}], ids=["text", "multimodal"])
def test_text_part_of_an_unknown_multimodal_model_is_refused(folder: Path, whole: dict[str, Any]) -> None:
    """GLM-4V has three position axes and interleaved pairs, which its text config need not mention."""
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "brand_new_vl", "text_config": text, **whole}))
    model = inlayer.load(folder)
    assert (model.spec is None) == bool(whole)
    if whole:
        with pytest.raises(ConfigError, match="may have several axes: it is part of a multimodal model"):
            model.embeddings  # noqa: B018


@pytest.mark.parametrize("field", ["router_scaling_factor", "moe_loss_factor", "initializer_factor"])
def test_factors_of_blocks_are_ordinary(folder: Path, field: str) -> None:
    change(folder, **{field: 2.5, "hidden_multiplier": 1.0, "is_encoder_decoder": False})
    assert inlayer.load(folder).spec.is_generic


@pytest.mark.parametrize(
    "name", ["model.embed_norm.weight", "model.embed_positions.weight", "model.embed_tokens_per_layer.weight", "x.gate"]
)
def test_other_tensors_are_refused(folder: Path, name: str) -> None:
    add_tensor(folder, name, torch.zeros(64))
    with pytest.raises(ConfigError, match="may belong to the input layer"):
        inlayer.load(folder).embeddings  # noqa: B018
