"""Value embeddings and two position axes (NeoMME), and repeated streams, against transformers."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

import inlayer
from tests.families.capture import capture
from tests.families.survey import open_reference, same_bits
from tests.families.tiny import VOCAB, build, tiny_config

DTYPES = [torch.float32, torch.bfloat16]
FULL, SLIDING = "full_attention", "sliding_attention"
LAYERS = [SLIDING, FULL, FULL, FULL]  # only the first and the last one with full attention read values


def saved(folder: Path, dtype: torch.dtype, **settings: Any) -> nn.Module:
    """A tiny NeoMME whose values are not zero, as they are when it is initialized."""
    torch.manual_seed(0)
    model = build("masked", tiny_config("neomme", "masked", layer_types=LAYERS, **settings)).eval().to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(folder)
    return open_reference(type(model), str(folder), dtype)  # `to` would round its rotary frequencies


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_each_block(tmp_path: Path, dtype: torch.dtype) -> None:
    model, ids = saved(tmp_path, dtype), torch.randint(0, VOCAB, (2, 7))
    opened = inlayer.load(tmp_path)
    layer, seen = opened.embeddings, capture(model, input_ids=ids)
    assert seen.hidden is not None
    assert same_bits(layer(ids), seen.hidden)
    assert set(seen.values) == {1, 3} == set(layer.value_layers)
    for number in range(4):
        ours = layer.value_embeddings(ids, layer=number)
        assert (ours is None) == (number not in seen.values)
        assert ours is None or same_bits(ours, seen.values[number])
    assert not same_bits(layer.value_embeddings(ids.flip(1)), seen.values[1])  # control
    assert same_bits(inlayer.load(tmp_path, trainable=True).embeddings.value_embeddings(ids), seen.values[1])
    roles = {table.role: table.name for table in opened.tables}
    assert roles["value"] == "model.value_embeddings.weight"


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_position_axes(tmp_path: Path, dtype: torch.dtype) -> None:
    model, ids = saved(tmp_path, dtype), torch.randint(0, VOCAB, (2, 7))
    layer = inlayer.load(tmp_path).embeddings
    positions = torch.randint(0, 50, (2, 2, 7))
    tables = capture(model, input_ids=ids, position_ids=positions).tables
    assert {table.layer_type for table in tables} == {FULL, SLIDING}
    with pytest.raises(inlayer.errors.ShapeError, match=r"\(2, batch, tokens\): one axis each for rows and columns"):
        layer.rotary(positions[:1], FULL)
    for table in tables:
        ours, swapped = layer.rotary(positions, table.layer_type), layer.rotary(positions.flip(0), table.layer_type)
        for mine, other, theirs in zip(ours, swapped, table.output, strict=True):
            assert same_bits(mine, theirs)
            assert not same_bits(other, theirs)  # control: rows and columns exchanged


def test_values_follow_when_the_table_is_resized(tmp_path: Path) -> None:
    saved(tmp_path, torch.float32)
    layer = inlayer.load(tmp_path, trainable=True).embeddings
    layer.resize(VOCAB + 5)
    assert layer.value_embeddings(torch.tensor([[VOCAB + 4]])).shape == (1, 1, 32)


def test_a_missing_or_misshapen_table_is_an_error(tmp_path: Path) -> None:
    saved(tmp_path, torch.float32)
    assert inlayer.inspect(tmp_path).exit_code < 2
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_key_value_heads": 1}))
    found = [one for one in inlayer.inspect(tmp_path).findings if one.severity == "error"]
    assert [one.code for one in found] == ["tensor-shape-mismatch"]
    assert found[0].message.endswith("has rows of width 32, but the config requires 16")
    with pytest.raises(inlayer.errors.CheckpointError, match=r"value_embeddings.weight.*requires \(99, 16\)"):
        _ = inlayer.load(tmp_path).embeddings
    with pytest.raises(inlayer.errors.InputError, match="no value embeddings"):
        inlayer.Embeddings(4, 8).value_embeddings(torch.tensor([[1]]))
    with pytest.raises(inlayer.errors.ConfigError, match="maximum is"):
        inlayer.describe({"model_type": "neomme", "vocab_size": 2**30, "num_key_value_heads": 2**20})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("trainable", [False, True])
def test_tables_of_the_nanochat_project(tmp_path: Path, trainable: bool, dtype: torch.dtype) -> None:
    """Every second block up to the last has a table; the reference is torch's lookup."""
    torch.manual_seed(0)
    build("causal", tiny_config("nanochat")).to(dtype).save_pretrained(tmp_path)
    path, ids = tmp_path / "model.safetensors", torch.randint(0, VOCAB, (2, 7))
    tables = {number: torch.randn(VOCAB, 32).to(dtype) for number in (1, 3)}
    named = {f"value_embeds.{number}.weight": table for number, table in tables.items()}
    save_file(load_file(path) | named | {"smear_gate.weight": torch.zeros(1, 24)}, path)
    model = inlayer.load(tmp_path, trainable=trainable)
    layer = model.embeddings
    assert "without the smear gate" in model.note
    assert layer.value_layers == (1, 3)
    for number, table in tables.items():
        assert same_bits(layer.value_embeddings(ids, layer=number), F.embedding(ids, table))
        assert not same_bits(layer.value_embeddings(ids.flip(1), layer=number), F.embedding(ids, table))  # control
    assert layer.value_embeddings(ids, layer=0) is None
    with pytest.raises(inlayer.errors.InputError, match="pass layer= with one of: 1, 3"):
        layer.value_embeddings(ids)
    with pytest.raises(inlayer.errors.IdRangeError):
        layer.value_embeddings(ids + VOCAB, layer=1)
    assert same_bits(layer(ids), pickle.loads(pickle.dumps(model)).embeddings(ids))
    if trainable:
        assert layer.value_tables is not None
        layer.resize(VOCAB + 5)
        assert layer.value_embeddings(torch.tensor([VOCAB + 4]), layer=3).shape == (1, 32)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["deepseek_v4", "hy_v4", "qwen4_exp_text"])
def test_streams_are_copies_of_the_hidden_states(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = build("causal", tiny_config(name)).eval().to(dtype)
    model.save_pretrained(tmp_path)
    layer, ids = inlayer.load(tmp_path).embeddings, torch.randint(4, 80, (2, 7))
    theirs = capture(model, input_ids=ids).hidden
    assert theirs is not None
    assert layer.n_streams == 4
    copies = layer(ids)[:, :, None].expand(-1, -1, layer.n_streams, -1)
    assert same_bits(copies if theirs.dim() == 4 else copies.flatten(-2), theirs)
    assert inlayer.load("default").embeddings.n_streams == 1
