"""A saved decoder has the same logits in transformers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2LMHeadModel, LlamaForCausalLM

import inlayer
from inlayer.errors import ConfigError
from inlayer.inspection import inspect
from inlayer.tensors import to_tensor
from inlayer.training.decoder import Decoder
from inlayer.training.export import save_decoder, without_scales
from tests.training.models import VOCABULARY, make_config, make_decoder, make_ids

# Largest difference between float32 logits of the same model, computed in another order.
ROUNDING = 1e-5

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt": ("gpt", {}),
    "gpt tied": ("gpt", {"tie": True, "padding_idx": 5, "norm_eps": 1e-3, "n_inner": 50}),
    "gpt sinusoidal": ("gpt", {"positions": "sinusoidal", "theta": 500.0}),
    "gpt scaled": ("gpt", {"tie": True, "input_scale": math.sqrt(32), "output_scale": 0.3}),
    "llama one kv head": ("llama", {"n_kv_head": 1, "theta": 500_000.0}),
    "llama two kv heads": ("llama", {"n_kv_head": 2, "tie": True, "padding_idx": 0, "norm_eps": 1e-3}),
    "llama all kv heads": ("llama", {"n_kv_head": 4, "n_inner": 50, "padding_idx": -1}),
    "llama scaled": ("llama", {"tie": True, "input_scale": math.sqrt(32), "padding_idx": 3}),
    "llama untied scaled": ("llama", {"input_scale": 3.0, "output_scale": 32**-0.5}),
}
every_case = pytest.mark.parametrize(("architecture", "settings"), CASES.values(), ids=CASES.keys())


def run_theirs(folder: Path, ids: Tensor) -> tuple[Any, Tensor, Tensor]:
    """The model in transformers, the input of its first block, and its logits."""
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report  # no missing or unexpected tensors
    entering: list[Tensor] = []
    blocks = model.transformer.h if isinstance(model, GPT2LMHeadModel) else model.model.layers
    blocks[0].register_forward_pre_hook(lambda _, given: entering.append(given[0]))
    with torch.no_grad():
        logits = model.eval()(ids).logits
    return model, entering[0], logits


# ---- transformers


@every_case
def test_transformers_logits_match(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    ours, ids = make_decoder(architecture, **settings), make_ids()
    save_decoder(ours, tmp_path / "saved")
    theirs, entering, logits = run_theirs(tmp_path / "saved", ids)
    assert type(theirs) is {"gpt": GPT2LMHeadModel, "llama": LlamaForCausalLM}[architecture]
    assert theirs.dtype == torch.float32
    assert torch.equal(ours.embeddings(ids), entering)
    torch.testing.assert_close(ours.logits(ids), logits, rtol=0, atol=ROUNDING)
    tied = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    assert tied == ours.config.tie
    assert theirs.config.pad_token_id == ours.embeddings.padding_idx


@pytest.mark.parametrize(
    ("architecture", "changed"),
    [
        ("gpt", {"layer_norm_epsilon": 1e-2}),
        ("gpt", {"activation_function": "relu"}),
        ("gpt", {"n_head": 2}),
        ("llama", {"rms_norm_eps": 1e-2}),
        ("llama", {"rope_theta": 20_000.0}),
        ("llama", {"hidden_act": "gelu"}),
    ],
)
def test_comparison_detects_another_config(architecture: str, changed: dict[str, Any], tmp_path: Path) -> None:
    ours, ids = make_decoder(architecture), make_ids()
    save_decoder(ours, tmp_path)
    change_config(tmp_path, **changed)
    _, _, logits = run_theirs(tmp_path, ids)
    assert (ours.logits(ids) - logits).abs().max() > 10 * ROUNDING


@pytest.mark.parametrize("name", ["model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.gate_proj.weight"])
def test_comparison_detects_one_wrong_tensor(name: str, tmp_path: Path) -> None:
    ours, ids = make_decoder("llama", n_kv_head=4), make_ids()
    save_decoder(ours, tmp_path)
    change_tensor(tmp_path, name, lambda tensor: tensor.roll(1, 0))
    _, _, logits = run_theirs(tmp_path, ids)
    assert (ours.logits(ids) - logits).abs().max() > 10 * ROUNDING


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_bfloat16(architecture: str, tmp_path: Path) -> None:
    ours, ids = make_decoder(architecture, tie=True).bfloat16(), make_ids()
    save_decoder(ours, tmp_path)
    theirs, entering, logits = run_theirs(tmp_path, ids)
    assert theirs.dtype == torch.bfloat16
    assert torch.equal(ours.embeddings(ids), entering)
    torch.testing.assert_close(ours.logits(ids), logits, rtol=0.05, atol=0.05)


def test_generated_ids_match(tmp_path: Path) -> None:
    ours, ids = make_decoder("llama", n_kv_head=2), make_ids(2, 4)
    save_decoder(ours, tmp_path)
    theirs, _, _ = run_theirs(tmp_path, ids)
    more = theirs.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, pad_token_id=0)
    assert torch.equal(ours.generate(ids, 12, temperature=0.0), more)


# ---- scales


@pytest.mark.parametrize("name", CASES)
def test_scales_are_multiplied_in(name: str) -> None:
    architecture, settings = CASES[name]
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    other = Decoder(replace(decoder.config, input_scale=1.0, output_scale=1.0), seed=1).eval()
    other.load_state_dict(without_scales(decoder.config, decoder.state_dict()))
    assert torch.equal(other.embeddings(ids), decoder.embeddings(ids))
    if "scaled" in name:
        torch.testing.assert_close(other.logits(ids), decoder.logits(ids), rtol=0, atol=ROUNDING)
        assert not torch.equal(other.norm.weight, decoder.norm.weight)  # control
    else:
        assert torch.equal(other.logits(ids), decoder.logits(ids))
    if decoder.embeddings.padding_idx is not None:
        assert not other.embeddings.token_embedding.weight[decoder.embeddings.padding_idx].any()


# ---- the rest of inlayer


@every_case
def test_inlayer_load(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    save_decoder(decoder, tmp_path)
    model = inlayer.load(tmp_path)
    assert torch.equal(model.embeddings(ids), decoder.embeddings(ids))
    if settings.get("input_scale", 1.0) == 1.0:
        assert torch.equal(to_tensor(model.table.rows(ids)), decoder.embeddings.token_embedding(ids))
    hidden, factor = decoder(ids), settings.get("output_scale", 1.0)
    factor /= settings.get("input_scale", 1.0) if decoder.config.tie else 1.0
    assert model.head.tied == decoder.config.tie
    torch.testing.assert_close(model.head(hidden * factor), decoder.head(hidden), rtol=0, atol=ROUNDING)


@every_case
def test_inspect_finds_only_that_it_is_untrained(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    byte_sized = {**settings, "vocab_size": 257 if "padding_idx" in settings else 256}
    if "padding_idx" in settings:
        byte_sized["padding_idx"] = 256
    save_decoder(Decoder(make_config(architecture, **byte_sized), seed=0), tmp_path, tokenizer=inlayer.ByteTokenizer())
    found = {(finding.severity, finding.code) for finding in inspect(tmp_path).findings}
    assert found <= {("note", "random-initialization"), ("note", "special-id-without-token")}, found


# ---- the folder


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
@pytest.mark.parametrize("tie", [True, False])
def test_tied_model_stores_its_table_once(architecture: str, tie: bool, tmp_path: Path) -> None:
    decoder = make_decoder(architecture, tie=tie)
    save_decoder(decoder, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert [tuple(tensor.shape) for tensor in tensors.values()].count((VOCABULARY, 32)) == (1 if tie else 2)
    assert sum(tensor.numel() for tensor in tensors.values()) == sum(
        parameter.numel() for parameter in decoder.parameters()
    )


def test_files_of_the_folder(tmp_path: Path) -> None:
    save_decoder(make_decoder("gpt"), tmp_path / "a" / "b", eos_id=2)
    assert {path.name for path in (tmp_path / "a" / "b").iterdir()} == {"config.json", "model.safetensors"}
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b"]
    config = json.loads((tmp_path / "a" / "b" / "config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (None, 2, None)


def test_state_of_another_decoder(tmp_path: Path) -> None:
    made, other = make_decoder("llama"), make_decoder("llama", seed=9)
    save_decoder(made, tmp_path / "made")
    save_decoder(made, tmp_path / "state", state=other.state_dict())
    save_decoder(other, tmp_path / "other")
    first, second, third = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("made", "state", "other"))
    assert second == third != first


# ---- errors


@pytest.mark.parametrize("settings", [{"soft_cap": 30.0}, {"input_norm": True}])
def test_unsupported_features_are_reported_before_writing(settings: dict[str, Any], tmp_path: Path) -> None:
    decoder = make_decoder("llama", **settings)
    with pytest.raises(ConfigError, match=f"{next(iter(settings))} cannot be saved .*LlamaForCausalLM"):
        save_decoder(decoder, tmp_path)
    assert not list(tmp_path.iterdir())


# ---- helpers


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_tensor(folder: Path, name: str, how: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = how(tensors[name]).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
