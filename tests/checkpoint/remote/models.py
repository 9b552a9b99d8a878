"""Small checkpoints to serve, and a sparse one with the shapes of Kimi-K2."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

TABLE, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
ROWS, WIDTH = 4096, 256
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
KIMI_ROWS, KIMI_WIDTH, KIMI_SHARDS, KIMI_LAYERS, KIMI_EXPERTS = 163_840, 7_168, 61, 61, 384


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, np.ndarray]]) -> None:
    """Write tensors given as dtype name and array; BF16 is given as uint16."""
    entries, offset = {}, 0
    for name, (dtype, array) in tensors.items():
        span = [offset, offset := offset + array.nbytes]
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
    header = json.dumps(entries).encode()
    data = b"".join(array.tobytes() for _, array in tensors.values())
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def make_small(folder: Path, *, seed: int = 0, index: bool = True) -> np.ndarray:
    """A checkpoint in two shards with a byte-level tokenizer. Returns the bytes of its table, (ROWS, 2 * WIDTH)."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    # The upper half of a float32 is a bfloat16.
    table = (random.standard_normal((ROWS, WIDTH), np.float32).view(np.uint32) >> 16).astype(np.uint16)
    first = {TABLE: ("BF16", table), NORM: ("F32", random.standard_normal(WIDTH, np.float32))}
    if index:
        write_safetensors(folder / SHARDS[0], first)
        write_safetensors(folder / SHARDS[1], {HEAD: ("BF16", table[:8])})
        weight_map = {HEAD: SHARDS[1], TABLE: SHARDS[0], NORM: SHARDS[0]}
        write_json(folder / "model.safetensors.index.json", {"metadata": {"total_size": 9}, "weight_map": weight_map})
    else:
        write_safetensors(folder / "model.safetensors", first)
    write_json(folder / "config.json", {"model_type": "llama", "vocab_size": ROWS, "hidden_size": WIDTH})
    write_byte_ranks(folder)
    (folder / "modeling_evil.py").write_text("raise SystemExit('code from a repository was executed')")
    return table.view(np.uint8)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_byte_ranks(folder: Path) -> None:
    lines = [f"{base64.b64encode(bytes([byte])).decode()} {byte}" for byte in range(256)]
    (folder / "tiktoken.model").write_text("\n".join(lines) + "\n")
    (folder / "pat_str.txt").write_text(r"\p{L}+|\p{N}+|\s+|[^\s\p{L}\p{N}]+")


def kimi_names() -> Iterator[tuple[str, int]]:
    """The tensors of Kimi-K2, each with its layer: 8-bit weights with their scales, 384 experts per layer."""
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


def make_kimi(folder: Path, rows: dict[int, bytes], *, table_at: str = "start") -> int:
    """A checkpoint with Kimi-K2's shapes, zero except for some rows. Returns the number of tensors in its index."""
    folder.mkdir()
    names = list(kimi_names())
    if table_at == "middle":
        names.insert(len(names) // 2, names.pop(0))
    shard = [f"model-{number}-of-{KIMI_SHARDS}.safetensors" for number in range(1, KIMI_SHARDS + 1)]
    weight_map = {name: shard[layer] for name, layer in names}
    index = {"metadata": {"total_size": 1_029_190_092_864}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))
    # The other tensors of the first shard make its header as long as the real one.
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
        for row, data in rows.items():
            stream.seek(8 + len(header) + start + row * KIMI_WIDTH * 2)
            stream.write(data)
    write_json(
        folder / "config.json",
        {"model_type": "kimi_k2", "vocab_size": KIMI_ROWS, "hidden_size": KIMI_WIDTH, "quantization_config": {}},
    )
    write_many_ranks(folder)
    return len(names)


def write_many_ranks(folder: Path) -> None:
    """As many tiktoken ranks as Kimi-K2 has, of about the same length."""
    write_byte_ranks(folder)
    random = np.random.default_rng(0)
    seen = {bytes([byte]) for byte in range(256)}
    lines = []
    while len(seen) < 163_584:
        token = random.bytes(int(random.integers(4, 10)))
        if token not in seen:
            lines.append(f"{base64.b64encode(token).decode()} {len(seen)}")
            seen.add(token)
    with (folder / "tiktoken.model").open("a") as stream:
        stream.write("\n".join(lines) + "\n")
