"""A saved decoder has the same logits in transformers, and loads back unchanged."""

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
from inlayer.errors import CheckpointError, ConfigError, MissingFileError
from inlayer.inspection import inspect
from inlayer.tensors import to_tensor
from inlayer.training.decoder import Decoder
from inlayer.training.export import load_decoder, save_decoder
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
plain_cases = pytest.mark.parametrize(
    ("architecture", "settings"),
    [case for name, case in CASES.items() if "scaled" not in name],
    ids=[name for name in CASES if "scaled" not in name],
)


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


# ---- loading


@plain_cases
def test_load_is_bit_equal(architecture: str, settings: dict[str, Any], tmp_path: Path) -> None:
    decoder, ids = make_decoder(architecture, dropout=0.25, **settings), make_ids()
    save_decoder(decoder, tmp_path)
    back = load_decoder(tmp_path)
    config = decoder.config
    explicit = replace(
        config, n_kv_head=config.kv_heads if architecture == "llama" else None, n_inner=config.hidden_width,
        positions=config.position_scheme if architecture == "gpt" else None, padding_idx=decoder.embeddings.padding_idx,
    )  # fmt: skip
    assert back.config == explicit
    assert {name: tensor.shape for name, tensor in back.state_dict().items()} == {
        name: tensor.shape for name, tensor in decoder.state_dict().items()
    }
    for name, tensor in decoder.state_dict().items():
        assert torch.equal(back.state_dict()[name], tensor), name
    assert all(parameter.requires_grad for parameter in back.parameters())
    assert torch.equal(back.eval().logits(ids), decoder.logits(ids))
    assert (back.head.weight is back.embeddings.token_embedding.weight) == config.tie


@pytest.mark.parametrize("name", [name for name in CASES if "scaled" in name])
def test_scales_are_multiplied_in(name: str, tmp_path: Path) -> None:
    architecture, settings = CASES[name]
    decoder, ids = make_decoder(architecture, **settings), make_ids()
    save_decoder(decoder, tmp_path)
    back = load_decoder(tmp_path).eval()
    assert (back.config.input_scale, back.config.output_scale) == (1.0, 1.0)
    assert torch.equal(back.embeddings(ids), decoder.embeddings(ids))
    torch.testing.assert_close(back.logits(ids), decoder.logits(ids), rtol=0, atol=ROUNDING)
    if decoder.embeddings.padding_idx is not None:
        assert not back.embeddings.token_embedding.weight[decoder.embeddings.padding_idx].any()


def test_fine_tuned_sinusoidal_positions_load_as_learned(tmp_path: Path) -> None:
    decoder, ids = make_decoder("gpt", positions="sinusoidal"), make_ids()
    save_decoder(decoder, tmp_path)
    assert load_decoder(tmp_path).config.position_scheme == "sinusoidal"
    change_tensor(tmp_path, "transformer.wpe.weight", lambda tensor: tensor + 0.5)
    back = load_decoder(tmp_path).eval()
    assert back.config.position_scheme == "learned"
    torch.testing.assert_close(back.embeddings(ids), decoder.embeddings(ids) + 0.5)


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_load_from_transformers(architecture: str, tmp_path: Path) -> None:
    decoder, ids = make_decoder(architecture, tie=True), make_ids()
    save_decoder(decoder, tmp_path / "ours")
    theirs, _, _ = run_theirs(tmp_path / "ours", ids)
    theirs.save_pretrained(tmp_path / "theirs")
    assert torch.equal(load_decoder(tmp_path / "theirs").eval().logits(ids), decoder.logits(ids))


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
    assert model.head is not None
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
    save_decoder(made, tmp_path, state=other.state_dict())
    assert torch.equal(load_decoder(tmp_path).eval().logits(make_ids()), other.logits(make_ids()))


# ---- errors


@pytest.mark.parametrize("settings", [{"soft_cap": 30.0}, {"input_norm": True}])
def test_unsupported_features_are_reported_before_writing(settings: dict[str, Any], tmp_path: Path) -> None:
    decoder = make_decoder("llama", **settings)
    with pytest.raises(ConfigError, match=f"{next(iter(settings))} cannot be saved .*LlamaForCausalLM"):
        save_decoder(decoder, tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("architecture", "changed", "message"),
    [
        ("llama", {"attention_bias": True}, "attention_bias is True; the decoder supports only False"),
        ("llama", {"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ("llama", {"head_dim": 16}, "head_dim is 16"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "scales its rotary positions"),
        ("llama", {"num_hidden_layers": 10**9}, "1,000,000,000 blocks"),
        ("llama", {"num_hidden_layers": 3}, "has no tensor 'model.layers.2"),
        ("llama", {"num_hidden_layers": 1}, "has an unexpected tensor 'model.layers"),
        ("llama", {"intermediate_size": 64}, "has shape .*its config requires"),
        ("llama", {"tie_word_embeddings": True}, "unexpected tensor 'lm_head.weight'"),
        ("llama", {"model_type": "mistral"}, "mistral models cannot be loaded"),
        ("gpt", {"activation_function": "relu"}, "activation_function is 'relu'"),
        ("gpt", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx is True"),
        ("gpt", {"n_positions": 2**30}, "has shape"),
    ],
)
def test_folder_that_is_not_a_decoder(architecture: str, changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_decoder(make_decoder(architecture), tmp_path)
    change_config(tmp_path, **changed)
    with pytest.raises((CheckpointError, ConfigError), match=message):
        load_decoder(tmp_path)


def test_folder_without_weights_or_config(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="has no weights"):
        load_decoder(tmp_path)
    save_decoder(make_decoder("gpt"), tmp_path)
    (tmp_path / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"no config.json"):
        load_decoder(tmp_path)


# ---- helpers


def change_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def change_tensor(folder: Path, name: str, how: Any) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[name] = how(tensors[name]).contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
