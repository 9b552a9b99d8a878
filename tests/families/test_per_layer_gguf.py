"""Gemma-3n and Gemma-4 from GGUF: the same hidden states, per-layer vectors and angles as from safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

import inlayer
from tests.checkpoint.make_gguf import gguf, write_gguf
from tests.families.survey import same_bits
from tests.families.tiny import VOCAB, build, tiny_config

NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}
HEAD, WIDE, LAYERS, WIDTH = 16, 32, 4, 24
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def values(architecture: str) -> dict[str, Any]:
    """The metadata that llama.cpp's converter writes for these types."""
    named = {
        "context_length": 64, "embedding_length": 40, "block_count": LAYERS, "attention.head_count": 4,
        "attention.layer_norm_rms_epsilon": 1e-6, "embedding_length_per_layer_input": WIDTH,
        "rope.freq_base": 1e6, "rope.freq_base_swa": 1e4, "final_logit_softcapping": 30.0,
    }  # fmt: skip
    if architecture == "gemma4":
        named |= {"attention.key_length": WIDE, "attention.key_length_swa": HEAD, "rope.dimension_count": WIDE}
    else:
        named |= {"attention.key_length": HEAD, "altup.num_inputs": 4}
    return {f"{architecture}.{name}": value for name, value in named.items()}


def saved(folder: Path, model_type: str, kind: str, *, divisors: list[float] | None = None) -> Path:
    """A tiny model as safetensors, and the parts of its input layer as a GGUF file with this type of rows."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 40, "hidden_size_per_layer_input": WIDTH, "vocab_size_per_layer_input": VOCAB - 20}
    model = build("causal", tiny_config(model_type, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.to(TYPES.get(kind, torch.float32)).save_pretrained(folder)
    stored = {"float32": "F32", "bfloat16": "BF16"}.get(kind, kind)
    tensors: dict[str, tuple[np.ndarray, str | None]] = {}
    with safe_open(folder / "model.safetensors", "pt") as opened:
        for name, short in NAMES.items():
            array = opened.get_tensor(name).float().numpy()
            written = "F32" if array.ndim == 1 or (array.shape[-1] % 32 and stored == "Q8_0") else stored
            raw = array if written == "F32" else gguf.quantize(array, gguf.GGMLQuantizationType[written])
            tensors[short] = raw, None if written == "F32" else written
    architecture = model_type.removesuffix("_text")
    if architecture == "gemma4":
        rotated = WIDE // 8  # a quarter of the pairs
        chosen = divisors or [1.0] * rotated + [1e30] * (WIDE // 2 - rotated)
        tensors["rope_freqs.weight"] = np.array(chosen, np.float32), None
    tokenizer = {"model": "none", "padding_token_id": 0}
    return write_gguf(
        folder / "model.gguf", architecture=architecture, values=values(architecture), tokenizer=tokenizer,
        tensors=tensors,
    )  # fmt: skip


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("model_type", ["gemma3n_text", "gemma4_text"])
def test_equal_to_the_original(tmp_path: Path, model_type: str, kind: str) -> None:
    file = saved(tmp_path, model_type, kind)
    model, original = inlayer.load(file), inlayer.load(tmp_path)
    ours, theirs = model.embeddings, original.embeddings
    ids = torch.randint(0, VOCAB - 20, (2, 7))
    assert ours.dtype == theirs.dtype == TYPES[kind]
    assert same_bits(ours(ids), theirs(ids))
    assert same_bits(ours.per_layer(ids), theirs.per_layer(ids))
    assert not same_bits(ours.per_layer(ids.flip(1)), theirs.per_layer(ids))  # control
    positions = torch.arange(40)[None]
    for layer_type in ("full_attention", "sliding_attention"):
        pairs = zip(ours.rotary(positions, layer_type), theirs.rotary(positions, layer_type), strict=True)
        assert all(same_bits(one, other) for one, other in pairs)
    full, sliding = (ours.rotary(positions, f"{kind}_attention")[0] for kind in ("full", "sliding"))
    assert not torch.equal(full[..., : sliding.shape[-1]], sliding)  # control: the two kinds differ
    roles = {table.role: table.shape for table in model.tables}
    assert roles["per_layer"] == (VOCAB - 20, LAYERS * WIDTH)


def test_quantized_rows_are_those_of_the_file(tmp_path: Path) -> None:
    file = saved(tmp_path, "gemma4_text", "Q8_0")
    layer, original = inlayer.load(file).embeddings, inlayer.load(tmp_path).embeddings
    extra, ids = layer.per_layer_embedding, torch.tensor([[5, 6]])
    assert extra is not None
    with safe_open(tmp_path / "model.safetensors", "pt") as opened:
        rows = opened.get_tensor("model.embed_tokens_per_layer.weight")[ids[0]].numpy()
    kind = gguf.GGMLQuantizationType.Q8_0
    unpacked = torch.from_numpy(gguf.dequantize(gguf.quantize(rows, kind), kind)) * WIDTH**0.5
    assert torch.equal(extra.look_up(ids)[0], unpacked.view(2, LAYERS, WIDTH))
    assert not torch.equal(layer.per_layer(ids), original.per_layer(ids))  # control: rounded to 8 bits
    torch.testing.assert_close(layer.per_layer(ids), original.per_layer(ids), rtol=0.05, atol=0.1)


def test_other_divisors_are_an_error(tmp_path: Path) -> None:
    file = saved(tmp_path, "gemma4_text", "float32", divisors=[1.0, 2.0] * (WIDE // 4))
    with pytest.raises(inlayer.errors.InlayerError, match="expected 16 divisors, each 1 or very large"):
        inlayer.load(file)
