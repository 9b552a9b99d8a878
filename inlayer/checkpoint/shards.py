"""The index of a checkpoint in shards: which file holds which tensor.

[checkpoint] -> Embeddings, Head, tokenizer
- the names of files come from a stranger: only plain names within the checkpoint's own folder are followed
- shards may have any name (`model-1-of-61.safetensors`), and the table may lie in any of them
Checked in tests/checkpoint/test_folder.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from inlayer.errors import CheckpointError
from inlayer.formats.safetensors import TensorInfo
from inlayer.paths import printable, quoted

__all__ = ["INDEX", "PLAIN_FILE", "check_file", "gather", "parse_index"]

INDEX = "model.safetensors.index.json"
LARGEST_INDEX = 64 << 20  # bytes; Kimi-K2's 139,644 tensors take some 14 MB
MAX_VALUES = 1_000_000  # each is many times larger in memory than in the file
MAX_FILES = 4096  # DeepSeek-V3 has 163
PLAIN_FILE = re.compile(r"(?!\.)[^/\\\0:]{1,250}\.(safetensors|bin)")


def parse_index(data: bytes, where: str) -> tuple[dict[str, str], int | None]:
    """File by tensor name, and the bytes of all tensors where the index says so."""
    if len(data) > LARGEST_INDEX:
        raise CheckpointError(f"{where} has {len(data):,} bytes; an index has at most {LARGEST_INDEX:,}")
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise CheckpointError(f"{where} holds more than {MAX_VALUES:,} values; no model has as many tensors")
    try:
        index: Any = json.loads(data)
    except RecursionError:
        raise CheckpointError(f"{where} is JSON nested too deeply to be an index") from None
    except ValueError as error:
        raise CheckpointError(f"{where} is no valid JSON ({printable(str(error))[:160]}); was it cut short?") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{where} has no weight_map, which says the file of every tensor")
    for name, file in weight_map.items():
        check_file(file, name, where)
    if len(set(weight_map.values())) > MAX_FILES:
        raise CheckpointError(f"{where} names more than {MAX_FILES:,} files; no model has as many shards")
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return weight_map, total if type(total) is int and total > 0 else None


def gather(headers: Iterable[Mapping[str, TensorInfo]], where: str) -> dict[str, TensorInfo]:
    """Every tensor of several files, by the headers of each, where no index says what is in which."""
    found: dict[str, TensorInfo] = {}
    for header in headers:
        for name, stored in header.items():
            if name in found:
                raise CheckpointError(
                    f"{where}: tensor {quoted(name)} is in {quoted(found[name].file)} and in {quoted(stored.file)}, "
                    "and no index says which counts; name the file to open"
                )
            found[name] = stored
    return found


def check_file(file: object, name: str, where: str) -> str:
    """The name of a shard, if it is one: no path, above all none that leads out of the folder."""
    if not isinstance(file, str) or not PLAIN_FILE.fullmatch(file) or not file.isprintable():
        raise CheckpointError(
            f"{where} puts tensor {quoted(name)} into {quoted(file)}; a shard is a plain file name in the same folder"
        )
    return file
