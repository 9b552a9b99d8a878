"""GGUF files for the tests: valid ones written by the `gguf` package, and raw bytes to damage them."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UINT32, INT32, FLOAT32, STRING, ARRAY = 4, 5, 6, 8, 9


def write_gguf(
    path: Path,
    *,
    architecture: str = "llama",
    values: Mapping[str, Any] | None = None,
    tokenizer: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[np.ndarray, str | None]] | None = None,
) -> Path:
    """A file with these values (ints are uint32, floats float32), tokenizer.ggml.* fields, and tensors of raw rows."""
    writer = gguf.GGUFWriter(path, architecture)
    prefixed = {f"tokenizer.ggml.{name}": value for name, value in (tokenizer or {}).items()}
    for key, value in {**(values or {}), **prefixed}.items():
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, (array, kind) in (tensors or {}).items():
        writer.add_tensor(name, array, raw_dtype=None if kind is None else gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def fields_of_json(data: bytes, pre: str, *, rows: int | None = None, **others: Any) -> dict[str, Any]:
    """What a converter writes for a byte-level tokenizer.json; `rows` fills the vocabulary up to a table's size."""
    content = json.loads(data)
    ids = dict(content["model"]["vocab"])
    kinds = dict.fromkeys(ids.values(), NORMAL)
    for token in content["added_tokens"]:
        ids[token["content"]] = token["id"]
        kinds[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    texts = {token_id: token for token, token_id in ids.items()}
    size = rows or max(texts) + 1
    merges = content["model"]["merges"]
    return {
        "model": "gpt2",
        "pre": pre,
        "tokens": [texts.get(token_id, f"[PAD{token_id}]") for token_id in range(size)],
        "token_type": [kinds.get(token_id, UNUSED) for token_id in range(size)],
        "merges": [merge if isinstance(merge, str) else " ".join(merge) for merge in merges],
        **others,
    }


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def pair(key: bytes, kind: int, payload: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + payload


def array(kind: int, count: int, payload: bytes) -> bytes:
    return struct.pack("<IQ", kind, count) + payload


def tensor(name: bytes, axes: Sequence[int], kind: int, offset: int) -> bytes:
    """One entry of the list of tensors; axes fastest first, as the file has them."""
    return text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


def file(
    pairs: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> bytes:
    tensor_count, key_count = counts or (len(tensors), len(pairs))
    head = magic + struct.pack("<IQQ", version, tensor_count, key_count) + b"".join([*pairs, *tensors])
    return head + b"\0" * (-len(head) % alignment) + data
