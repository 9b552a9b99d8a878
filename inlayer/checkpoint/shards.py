"""The index of a sharded checkpoint: which file holds which tensor.

source -> [Store] -> Model
- file names in an index are untrusted: only plain names in the checkpoint's own folder are accepted
- shards can have any name (`model-1-of-61.safetensors`), and the table can be in any of them
Tested in tests/checkpoint/test_folder.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from inlayer.errors import CheckpointError
from inlayer.files import printable, quoted
from inlayer.formats.safetensors import TensorInfo

__all__ = ["INDEX", "MAX_INDEX", "PLAIN_FILE", "check_file", "merge_headers", "parse_index"]

INDEX = "model.safetensors.index.json"
MAX_INDEX = 64 << 20  # bytes; that of Kimi-K2's 139,644 tensors has about 14 MB
MAX_VALUES = 1_000_000  # each takes many times more memory than bytes in the file
MAX_FILES = 4096  # DeepSeek-V3 has 163
PLAIN_FILE = re.compile(r"(?!\.)[^/\\\0:]{1,250}\.(safetensors|bin)")


def parse_index(data: bytes, where: str) -> tuple[dict[str, str], int | None]:
    """The file of every tensor, and the total number of bytes if the index has it."""
    if len(data) > MAX_INDEX:
        raise CheckpointError(f"{where} has {len(data):,} bytes; an index has at most {MAX_INDEX:,}")
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise CheckpointError(f"{where} has more than {MAX_VALUES:,} values; no model has that many tensors")
    try:
        index: Any = json.loads(data)
    except RecursionError:
        raise CheckpointError(f"{where} is nested too deeply to be an index") from None
    except ValueError as error:
        raise CheckpointError(f"{where} is not valid JSON ({printable(str(error))[:160]}); is it truncated?") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{where} has no weight_map, which gives the file of every tensor")
    for name, file in weight_map.items():
        check_file(file, name, where)
    if len(set(weight_map.values())) > MAX_FILES:
        raise CheckpointError(f"{where} names more than {MAX_FILES:,} files; no model has that many shards")
    metadata = index.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return weight_map, total if type(total) is int and total > 0 else None


def merge_headers(headers: Iterable[Mapping[str, TensorInfo]], where: str) -> dict[str, TensorInfo]:
    """The tensors of several files, from the header of each, for checkpoints without an index."""
    found: dict[str, TensorInfo] = {}
    for header in headers:
        for name, tensor in header.items():
            if name in found:
                raise CheckpointError(
                    f"{where}: tensor {quoted(name)} is in both {quoted(found[name].file)} and {quoted(tensor.file)}, "
                    "without an index that says which one to use; open one of the files instead"
                )
            found[name] = tensor
    return found


def check_file(file: object, name: str, where: str) -> str:
    """Check that the name of a shard is a plain file name, not a path that could lead out of the folder."""
    if not isinstance(file, str) or not PLAIN_FILE.fullmatch(file) or not file.isprintable():
        raise CheckpointError(
            f"{where} puts tensor {quoted(name)} into {quoted(file)}; a shard is a plain file name in the same folder"
        )
    return file
