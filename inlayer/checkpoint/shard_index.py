"""The index of a checkpoint with several files: the file that contains each tensor.

source -> [index] -> Store -> Model
- untrusted: only plain file names in the same folder are accepted
- the index of a model with many experts is larger than its tokenizer, and usually names the table near its start or its
  end; in a remote index, these two parts are searched first. The result is only a hint: the header of the named file
  has the final say
Tested in tests/checkpoint/test_folder.py, remote ones in tests/checkpoint/remote/test_remote_store.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from inlayer.checkpoint.folder import Folder, is_plain_name
from inlayer.errors import CheckpointError
from inlayer.files import format_path, parse_json, quote, read_limited
from inlayer.formats.row_reader import ByteFile

INDEX = "model.safetensors.index.json"
MAX_INDEX = 64 << 20  # bytes; Kimi-K2's index of 139,644 tensors is about 14 MB
MAX_JSON_VALUES = 1_000_000  # a parsed value takes many times more memory than its bytes in the file
MAX_FILES = 4096  # shards; DeepSeek-V3 has 163
PART = 64 << 10  # bytes; most models' whole index
WEIGHTS = (".safetensors", ".bin")
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def open_index(files: Folder, name: str) -> Mapping[str, str]:
    """Return the file of every tensor. A remote index is only read as far as necessary."""
    if files.remote:
        return PartialIndex(files.open(name))
    path = files.local_path(name)
    return parse_index(read_limited(path, MAX_INDEX, CheckpointError, "an index"), format_path(path))


class PartialIndex(Mapping[str, str]):
    """A checkpoint's weight_map (tensor name -> file). Its start and end are read first, then everything."""

    def __init__(self, file: ByteFile) -> None:
        self._file, size = file, file.size
        if size > MAX_INDEX:
            raise CheckpointError(f"{file} is {size:,} bytes; the limit for an index is {MAX_INDEX:,}")
        self._ends = [file.read(0, min(PART, size)), file.read(max(PART, size - PART), size)]

    @cached_property
    def files(self) -> Mapping[str, str]:
        """The file of every tensor, by tensor name; reads the whole index."""
        return parse_index(self._file.read(0, self._file.size), str(self._file))

    def hint(self, name: str) -> str | None:
        """Return the file of a tensor if the start or the end of the index names it."""
        file = self._search(rb"(?<!\\)" + re.escape(json.dumps(name).encode()) + rb'\s*:\s*"([^"\\]{0,1000})"')
        return None if file is None else check_file(file, name, str(self._file))

    def parameters(self, config: Mapping[str, Any]) -> int | None:
        """Return the model's number of parameters, if the index gives it or their size in bytes."""
        total, size = (
            self._search(rb'"%s"\s*:\s*([0-9]{1,18})\s*[,}]' % name) for name in (b"total_parameters", b"total_size")
        )
        item = ITEM_BYTES.get(str(config.get("dtype") or config.get("torch_dtype")))
        if total is not None or size is None or item is None or "quantization_config" in config:
            return None if total is None else int(total)
        return int(size) // item

    def _search(self, pattern: bytes) -> str | None:
        """Return the first group of a pattern in the start or the end of the index."""
        match = next(filter(None, (re.search(pattern, part) for part in self._ends)), None)
        return None if match is None else match[1].decode(errors="replace")

    def __getitem__(self, name: str) -> str:
        return self.hint(name) or self.files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def parse_index(data: bytes, source: str) -> dict[str, str]:
    """Return the file of every tensor."""
    if sum(data.count(mark) for mark in (b",", b"[", b"{")) > MAX_JSON_VALUES:
        raise CheckpointError(f"{source} has more than {MAX_JSON_VALUES:,} values; no model has that many tensors")
    weight_map: Any = parse_json(data, source, CheckpointError).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{source} has no weight_map, which maps every tensor to its file")
    for name, file in weight_map.items():
        check_file(file, name, source)
    if len(set(weight_map.values())) > MAX_FILES:
        raise CheckpointError(f"{source} names more than {MAX_FILES:,} files; no model has that many shards")
    return weight_map


def check_file(file: object, name: str, source: str) -> str:
    """Check that the name of a shard is a plain file name, not a path that could lead out of the folder."""
    if not isinstance(file, str) or not is_plain_name(file) or not file.endswith(WEIGHTS):
        raise CheckpointError(
            f"{source} maps tensor {quote(name)} to {quote(file)}; a shard must be a plain file name in the same folder"
        )
    return file
