"""Safetensors files: the header, which lists the tensors and where their bytes are.

[file] -> header -> tables, checkpoint
- the file: 8 bytes with the length of the header, the header (JSON), then the bytes of the tensors without gaps
- everything in a header is checked before it is used: its length against the file's length, dtype x shape
  against the number of bytes, order and overlap of the tensors, duplicate names
- see also: the dtypes of rows (formats/dtypes.py), reading rows (formats/row_reader.py), quantized rows
  (formats/dequantization.py)
Tested against the safetensors library, and with damaged headers, in tests/formats/test_safetensors.py.
"""

from __future__ import annotations

import math
import struct
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from inlayer.errors import CheckpointError
from inlayer.files import parse_json, quote, unique_keys
from inlayer.formats.row_reader import ByteFile, LocalFile
from inlayer.formats.tensor_info import TensorInfo, unreadable_file_error

LENGTH_BYTES = 8
MAX_HEADER = 32 << 20  # bytes; in one file, Kimi-K2's 139,644 tensors would need half of that
MAX_TENSORS = 150_000  # per file; Kimi-K2 has 139,644 in all its files
MAX_SIZE = 2**48  # maximum size of an axis
MAX_AXES = 16

BITS = {
    "BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
_error = partial(unreadable_file_error, "safetensors")


def read_header(path: Path) -> dict[str, TensorInfo]:
    """Return the tensors of a local safetensors file, by name."""
    return read_tensors(LocalFile(path), path.name)


def read_tensors(file: ByteFile, name: str) -> dict[str, TensorInfo]:
    """Return the tensors of a safetensors file called `name`, from one or two reads."""
    start, size = file.read(0, max(LENGTH_BYTES, file.min_read)), file.size
    stop = LENGTH_BYTES + header_length(start, size, str(file))
    data = start + file.read(len(start), stop)
    return parse_header(data[LENGTH_BYTES:stop], size, str(file), file=name)


def header_length(start: bytes, file_size: int, source: str) -> int:
    """Return the length of the header, from the first bytes of a file of `file_size` bytes."""
    if len(start) < LENGTH_BYTES or file_size < LENGTH_BYTES:
        raise _error(source, f"it is only {file_size} bytes long", cut=True)
    (length,) = struct.unpack("<Q", start[:LENGTH_BYTES])
    if start.startswith(b"version "):
        raise _error(source, "it is a git-lfs pointer; download the file with `git lfs pull`")
    if length > MAX_HEADER:
        raise _error(source, f"its header is {length:,} bytes; the maximum is {MAX_HEADER:,}")
    if length > file_size - LENGTH_BYTES:
        raise _error(source, f"its header should be {length:,} bytes, but the file is {file_size:,}", cut=True)
    return int(length)


def parse_header(data: bytes, file_size: int, source: str, *, file: str) -> dict[str, TensorInfo]:
    """Return the tensors of a header, each checked against the size of the file and against the others."""
    # In memory, numbers and names take many times their size in the file. A real header has about ten per tensor.
    values, count = data.count(b",") + data.count(b"[") + data.count(b"{"), data.count(b"data_offsets")
    if values > 200_000 + 32 * count or count > MAX_TENSORS:
        raise _error(source, f"its header has {count:,} tensors and too many other values")
    entries = parse_json(data, f"{source} is not a readable safetensors file: its header", CheckpointError, unique_keys)
    start = LENGTH_BYTES + len(data)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise _error(source, "its __metadata__ is not an object of strings")
    tensors = {name: _entry(name, entry, start, source, file) for name, entry in entries.items()}
    end, last = start, "the header"
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != end:
            problem = "overlap" if tensor.offset < end else "have a gap between them"
            raise _error(source, f"tensors {quote(last)} and {quote(tensor.name)} {problem}")
        end, last = tensor.offset + tensor.nbytes, tensor.name
    if end != file_size:
        raise _error(
            source, f"its tensors end at byte {end:,}, but the file ends at byte {file_size:,}", cut=end > file_size
        )
    return tensors


def _entry(name: str, entry: object, start: int, source: str, file: str) -> TensorInfo:
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, span = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    label = f"tensor {quote(name)}"
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _error(source, f"{label} has the unknown dtype {quote(dtype)}")
    if not _are_sizes(shape, MAX_SIZE) or len(shape) > MAX_AXES:
        raise _error(source, f"{label} has the invalid shape {quote(shape)}")
    if not _are_sizes(span, 2**63) or len(span) != 2:
        raise _error(source, f"{label} has the invalid data_offsets {quote(span)}")
    nbytes = span[1] - span[0]
    if nbytes * 8 != math.prod(shape) * BITS[dtype]:
        raise _error(source, f"{label} is {dtype} of shape {quote(shape)}, which does not match its {nbytes:,} bytes")
    return TensorInfo(name=name, dtype=dtype, shape=tuple(shape), file=file, offset=start + span[0], nbytes=nbytes)


def _are_sizes(value: Any, limit: int) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(size) is int and 0 <= size < limit for size in value)
