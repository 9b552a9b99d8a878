"""Two small healthy checkpoints without findings, and helpers that damage a copy of one.

They are the control for every seeded fault (tests/inspection/faults.py).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import inlayer

ROWS, WIDTH = 640, 64
RESERVED = [f"<|reserved_{number}|>" for number in range(16)]
SPECIAL = ["<s>", "</s>", "<pad>", *RESERVED]
TOKENS = 600  # 581 bytes and merges, then special tokens; rows 600 to 639 pad the table
BOS, EOS, PAD = 581, 582, 583
INDEX = "model.safetensors.index.json"
TABLE, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
BERT_TABLE, POSITIONS = "bert.embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight"
BERT_NORM = "bert.embeddings.LayerNorm.weight"


# -- healthy checkpoints --


def trained_rows() -> Tensor:
    """A table like a trained one: varying norms, a mean vector, short and similar unused rows, a zero padding row."""
    random = torch.Generator().manual_seed(0)
    common = torch.randn(WIDTH, generator=random)
    table = 0.02 * torch.randn(ROWS, WIDTH, generator=random) * (1 + 0.3 * torch.rand(ROWS, 1, generator=random))
    table += 0.004 * common
    unused = [*range(PAD + 1, ROWS)]
    table[unused] = 0.002 * common + 0.0004 * torch.randn(len(unused), WIDTH, generator=random)
    table[PAD] = 0
    return table


def tokenizer_bytes(folder: Path) -> bytes:
    corpus = folder / "corpus.txt"
    corpus.write_text(" ".join(f"{a}{b}{c}" for a in "bcdfghjklmn" for b in "aeiou" for c in "lmnrst"))
    inlayer.train_bpe(corpus, TOKENS, folder / "tokenizer.json", special_tokens=SPECIAL)
    return (folder / "tokenizer.json").read_bytes()


def make_llama(folder: Path, tokenizer: bytes) -> None:
    """Llama layout: untied table and head in two shards with an index."""
    random = torch.Generator().manual_seed(1)
    write_json(
        folder / "config.json",
        {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": ROWS, "hidden_size": WIDTH,
            "num_attention_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 256, "rope_theta": 10000.0,
            "bos_token_id": BOS, "eos_token_id": [EOS], "pad_token_id": PAD, "tie_word_embeddings": False,
            "torch_dtype": "float32",
        },
    )  # fmt: skip
    save_file({TABLE: trained_rows()}, folder / FIRST)
    head = 0.02 * torch.randn(ROWS, WIDTH, generator=random)
    save_file({HEAD: head, NORM: torch.ones(WIDTH)}, folder / SECOND)
    write_json(folder / INDEX, {"metadata": {}, "weight_map": {TABLE: FIRST, HEAD: SECOND, NORM: SECOND}})
    (folder / "tokenizer.json").write_bytes(tokenizer)


def make_bert(folder: Path, tokenizer: bytes) -> None:
    """BERT layout: one file with learned positions, token types and a layer norm, without a head."""
    random = torch.Generator().manual_seed(2)
    write_json(
        folder / "config.json",
        {
            "model_type": "bert", "architectures": ["BertModel"], "vocab_size": ROWS, "hidden_size": WIDTH,
            "num_attention_heads": 4, "num_hidden_layers": 1, "max_position_embeddings": 128, "type_vocab_size": 2,
            "pad_token_id": PAD,
        },
    )  # fmt: skip
    parts = {
        BERT_TABLE: trained_rows(),
        POSITIONS: 0.02 * torch.randn(128, WIDTH, generator=random),
        "bert.embeddings.token_type_embeddings.weight": 0.02 * torch.randn(2, WIDTH, generator=random),
        BERT_NORM: torch.ones(WIDTH),
        "bert.embeddings.LayerNorm.bias": torch.zeros(WIDTH),
    }
    save_file(parts, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(tokenizer)


MAKERS = {"llama": make_llama, "bert": make_bert}


# -- helpers that damage a copy --


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def set_config(folder: Path, **fields: object) -> None:
    write_json(folder / "config.json", read_json(folder / "config.json") | fields)


def change(folder: Path, name: str, how: Callable[[Tensor], Tensor | None]) -> None:
    """Change a tensor in its file: `how` changes it in place or returns a new one."""
    for file in sorted(folder.glob("*.safetensors")):
        tensors = load_file(file)
        if name in tensors:
            changed = how(tensors[name])
            tensors[name] = tensors[name] if changed is None else changed.contiguous()
            save_file(tensors, file)


def set_rows(folder: Path, rows: object, values: Tensor | float, table: str = TABLE) -> None:
    change(folder, table, lambda tensor: tensor.__setitem__(rows, values))  # type: ignore[func-returns-value]


def remove_tensor(folder: Path, name: str) -> None:
    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        if tensors.pop(name, None) is not None:
            save_file(tensors, file)
    if (folder / INDEX).exists():
        index = read_json(folder / INDEX)
        index["weight_map"].pop(name, None)
        write_json(folder / INDEX, index)


def set_index(folder: Path, name: str, file: str) -> None:
    index = read_json(folder / INDEX)
    index["weight_map"][name] = file
    write_json(folder / INDEX, index)


def set_header(path: Path, how: Callable[[dict[str, Any]], None]) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    how(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def sparse_tensor(path: Path, name: str, shape: tuple[int, ...]) -> None:
    """Replace a tensor with zeros of any shape, stored as a sparse file that takes no disk space."""
    tensors = load_file(path)
    tensors.pop(name)
    save_file(tensors, path)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    end, size = len(data) - 8 - length, 4 * math.prod(shape)
    set_header(
        path, lambda header: header.update({name: {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}})
    )
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)
