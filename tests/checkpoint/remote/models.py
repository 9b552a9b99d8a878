"""Small checkpoints to serve, and one with the shapes of Kimi-K2 that takes no room on disk."""

from __future__ import annotations

import base64
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"
ROWS, WIDTH = 4096, 256
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
KIMI_ROWS, KIMI_WIDTH, KIMI_SHARDS, KIMI_LAYERS, KIMI_EXPERTS = 163_840, 7_168, 61, 61, 384
KIMI_TOKENIZER = Path(__file__).parents[4] / "shared" / "data" / "tokenizers" / "kimi-k2"


def make_small(folder: Path, *, seed: int = 0, index: bool = True) -> torch.Tensor:
    """A checkpoint in two shards, with a tokenizer of single bytes; its table is returned."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(ROWS, WIDTH, generator=generator).to(torch.bfloat16)
    norm = torch.randn(WIDTH, generator=generator)
    if index:
        save_file({TABLE: table, "model.norm.weight": norm}, folder / SHARDS[0])
        save_file({HEAD: table[:8].clone()}, folder / SHARDS[1])
        weight_map = {HEAD: SHARDS[1], TABLE: SHARDS[0], "model.norm.weight": SHARDS[0]}
        write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": 9}, "weight_map": weight_map})
    else:
        save_file({TABLE: table, "model.norm.weight": norm}, folder / "model.safetensors")
    write_json(folder / "config.json", {"model_type": "llama", "vocab_size": ROWS, "hidden_size": WIDTH})
    write_byte_ranks(folder)
    (folder / "modeling_evil.py").write_text("raise SystemExit('code of a repository was run')")
    return table


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_byte_ranks(folder: Path) -> None:
    lines = [f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256)]
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    (folder / "pat_str.txt").write_text(r"\p{L}+|\p{N}+|\s+|[^\s\p{L}\p{N}]+")


def kimi_names() -> Iterator[tuple[str, int]]:
    """The tensors of Kimi-K2 and the layer each belongs to: 8-bit weights with their scales, 384 experts a layer."""
    yield TABLE, 0
    attention = ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
    for layer in range(KIMI_LAYERS):
        at = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm", "self_attn.q_a_layernorm"):
            yield f"{at}.{norm}.weight", layer
        yield f"{at}.self_attn.kv_a_layernorm.weight", layer
        yield f"{at}.self_attn.rotary_emb.inv_freq", layer
        blocks = [f"{at}.self_attn.{name}" for name in attention]
        experts = [f"experts.{expert}" for expert in range(KIMI_EXPERTS)] + ["shared_experts"] if layer else [""]
        for expert in experts:
            blocks += [f"{at}.mlp.{expert}.{name}".replace("..", ".") for name in ("down_proj", "gate_proj", "up_proj")]
        for block in blocks:
            yield f"{block}.weight", layer
            yield f"{block}.weight_scale_inv", layer
        if layer:
            yield f"{at}.mlp.gate.weight", layer
            yield f"{at}.mlp.gate.e_score_correction_bias", layer
    yield "model.norm.weight", KIMI_LAYERS - 1
    yield HEAD, KIMI_LAYERS - 1


def make_kimi(folder: Path, written: dict[int, torch.Tensor], *, table_at: str = "start") -> int:
    """A checkpoint of Kimi-K2's shapes, all zero but for some rows; returns how many tensors its index names."""
    folder.mkdir()
    names = list(kimi_names())
    if table_at == "middle":
        names.insert(len(names) // 2, names.pop(0))
    shard = [f"model-{number}-of-{KIMI_SHARDS}.safetensors" for number in range(1, KIMI_SHARDS + 1)]
    weight_map = {name: shard[layer] for name, layer in names}
    index = {"metadata": {"total_size": 1_029_190_092_864}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    # What the first shard also holds: its header is as long as the real one's.
    others = [name for name, layer in names if layer == 1]
    entries = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(others)
    }
    nbytes, start = KIMI_ROWS * KIMI_WIDTH * 2, 4 * len(others)
    entries[TABLE] = {"dtype": "BF16", "shape": [KIMI_ROWS, KIMI_WIDTH], "data_offsets": [start, start + nbytes]}
    header = json.dumps(entries).encode()
    with (folder / shard[0]).open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + start + nbytes)
        for row, values in written.items():
            stream.seek(8 + len(header) + start + row * KIMI_WIDTH * 2)
            stream.write(values.view(torch.uint8).numpy().tobytes())
    write_json(
        folder / "config.json",
        {"model_type": "kimi_k2", "vocab_size": KIMI_ROWS, "hidden_size": KIMI_WIDTH, "quantization_config": {}},
    )
    if KIMI_TOKENIZER.is_dir():
        for name in ("tiktoken.model", "pat_str.txt"):
            shutil.copy(KIMI_TOKENIZER / name, folder / name)
    else:
        write_like_kimi(folder)
    return len(names)


def write_like_kimi(folder: Path) -> None:
    """Ranks as many and about as long as Kimi-K2's."""
    write_byte_ranks(folder)
    random = np.random.default_rng(0)
    made = {bytes([byte]) for byte in range(256)}
    lines = []
    while len(made) < 163_584:
        token = random.bytes(int(random.integers(4, 10)))
        if token not in made:
            lines.append(f"{base64.b64encode(token).decode()} {len(made)}")
            made.add(token)
    with (folder / "tiktoken.model").open("a") as stream:
        stream.write("\n".join(lines) + "\n")
