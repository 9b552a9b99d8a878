"""GGUF files: the header (metadata, and where the bytes of each tensor are).

[file] -> header -> tables, checkpoint
- untrusted: the header is read piece by piece, and every count and length is compared with the remaining bytes before
  anything is allocated or looped over
- arrays (a vocabulary has hundreds of thousands of strings) are only located. The tokenizer reads them later
- see also: decoding rows (formats/dequantization.py)
Tested against the `gguf` package, and with damaged files, in tests/checkpoint/test_gguf_store.py.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from inlayer.errors import CheckpointError
from inlayer.files import quote
from inlayer.formats.dequantization import GGML_TYPES, row_bytes
from inlayer.formats.row_reader import ByteFile
from inlayer.formats.tensor_info import TensorInfo, unreadable_file_error

MAGIC = b"GGUF"
WINDOW = 1 << 20
MAX_HEADER = 64 << 20  # bytes; the largest vocabularies, with their merges, need a third of that
MAX_STRING = 16 << 20
MAX_NAME = 1 << 16  # maximum length of the name of a key or a tensor
MAX_KEYS = 1 << 12
MAX_TENSORS = 1 << 15  # the largest models have a few thousand, because experts are stacked
MAX_STRINGS = 3 << 19  # total for all arrays; real files have at most half of that
MAX_INNER_ARRAYS = 1 << 14  # real files have none
MAX_DEPTH = 4  # arrays within arrays
MAX_AXES = 4
MAX_ALIGNMENT = 1 << 16

STRING, ARRAY, BOOLEAN = 8, 9, 7
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", BOOLEAN: "<B", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
STRUCTS = {kind: struct.Struct(form) for kind, form in SCALARS.items()}
TENSOR_STRUCTS = [struct.Struct(f"<{axes}QIQ") for axes in range(MAX_AXES + 1)]  # sizes, type, offset
UINT32, UINT64 = struct.Struct("<I"), struct.Struct("<Q")
KIND_OF_NUMBER = {number: name for name, (number, _, _) in GGML_TYPES.items()}


@dataclass(frozen=True)
class StoredArray:
    """Location and type of an array in the metadata, which stays in the file."""

    kind: int  # type number of its entries
    count: int
    offset: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class GgufHeader:
    """A file's metadata and tensors. A metadata value is a number, a bool, a string, or a `StoredArray`."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]


class HeaderReader:
    """Reads the header of a GGUF file called `name` piece by piece, only as far as necessary, and checks it."""

    def __init__(self, file: ByteFile, name: str) -> None:
        self._file, self._file_name, self._size = file, name, file.size
        self._data, self._position = bytearray(), 0  # the bytes read so far
        self._entries = {STRING: 0, ARRAY: 0}  # elements in all arrays so far

    def header(self) -> GgufHeader:
        self._check_start()
        tensor_count, key_count = self._count("tensors", MAX_TENSORS), self._count("keys", MAX_KEYS)
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._name("a key")
            if key in metadata:
                raise self._error(f"the key {quote(key)} occurs twice")
            metadata[key] = self._value(self._number(UINT32, "the type of a value"), key)
        entries = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self._error(f"its alignment is {quote(alignment)}, not a power of two up to {MAX_ALIGNMENT:,}")
        return GgufHeader(metadata=metadata, tensors=self._locate(entries, alignment))

    def _check_start(self) -> None:
        start = self._take(8, "the version")
        if start.startswith(b"version "):
            raise self._error("it is a git-lfs pointer; download the file with `git lfs pull`")
        if not start.startswith(MAGIC):
            raise self._error("it does not start with the letters GGUF")
        version = int.from_bytes(start[4:], "little")
        if version not in (2, 3):
            swapped = int.from_bytes(start[4:], "big")
            why = "it is a big-endian file" if 1 <= swapped <= 3 else f"it has version {version:,}"
            raise self._error(f"{why}; supported: little-endian files of version 2 and 3")

    def _count(self, item: str, limit: int) -> int:
        count: int = self._number(UINT64, "a count")
        if count > limit:
            raise self._error(f"it has {count:,} {item}; the maximum is {limit:,}")
        return count

    def _value(self, kind: int, key: str) -> Any:
        if kind in SCALARS:
            value = self._number(STRUCTS[kind], f"the value of {quote(key)}")
            if kind == BOOLEAN and value > 1:
                raise self._error(f"{quote(key)} is a bool with the value {value}")
            return bool(value) if kind == BOOLEAN else value
        if kind == STRING:
            return self._string(MAX_STRING, f"the value of {quote(key)}").decode(errors="replace")
        if kind == ARRAY:
            return self._array(key, 1)
        raise self._error(f"{quote(key)} has the unknown type {kind}")

    def _array(self, key: str, depth: int) -> StoredArray:
        """Locate an array and skip its entries."""
        item = f"the array {quote(key)}"
        kind, count = self._number(UINT32, item), self._number(UINT64, item)
        start = self._position
        if kind in SCALARS:
            self._skip(count * STRUCTS[kind].size, item)
            return StoredArray(kind, count, start, self._position - start)
        if kind not in self._entries:
            raise self._error(f"{item} has entries of the unknown type {kind}")
        self._entries[kind] += count
        if self._entries[STRING] > MAX_STRINGS or self._entries[ARRAY] > MAX_INNER_ARRAYS:
            raise self._error(f"its arrays have more than {MAX_STRINGS:,} strings or {MAX_INNER_ARRAYS:,} arrays")
        if kind == STRING:
            self._skip_strings(count, item)
        elif depth == MAX_DEPTH:
            raise self._error(f"{item} is nested more than {MAX_DEPTH} levels deep")
        else:
            for _ in range(count):
                self._array(key, depth + 1)
        return StoredArray(kind, count, start, self._position - start)

    def _tensor(self) -> TensorInfo:
        """Read a tensor's entry, without checking it against the file; its offset is relative to the first tensor."""
        name = self._name("a tensor's name")
        item = f"tensor {quote(name)}"
        axes = self._number(UINT32, item)
        if axes > MAX_AXES:
            raise self._error(f"{item} has {axes:,} axes; the maximum is {MAX_AXES}")
        form = TENSOR_STRUCTS[axes]
        *sizes, number, offset = form.unpack(self._take(form.size, item))
        shape = tuple(reversed(sizes))  # the file lists the fastest axis first
        if 0 in shape:
            raise self._error(f"{item} is empty: its shape is {shape}")
        if number not in KIND_OF_NUMBER:
            raise self._error(f"{item} has the unknown type {number:,}")
        kind, width = KIND_OF_NUMBER[number], shape[-1] if shape else 1
        if width % GGML_TYPES[kind][1]:
            raise self._error(f"{item} is {kind} with rows of {width:,}, not a whole number of blocks")
        nbytes = math.prod(shape[:-1]) * row_bytes(kind, width)
        return TensorInfo(name=name, dtype=kind, shape=shape, file=self._file_name, offset=offset, nbytes=nbytes)

    def _locate(self, entries: list[TensorInfo], alignment: int) -> dict[str, TensorInfo]:
        """Return the tensors, checked to be inside the file and not to overlap."""
        start = -(-(self._position) // alignment) * alignment
        located: dict[str, TensorInfo] = {}
        end, last = start, "the header"
        for entry in sorted(entries, key=lambda entry: (entry.offset, entry.nbytes)):
            tensor, item = replace(entry, offset=start + entry.offset), f"tensor {quote(entry.name)}"
            if entry.offset % alignment:
                raise self._error(f"{item} at offset {entry.offset:,} is not aligned to {alignment} bytes")
            if tensor.offset + tensor.nbytes > self._size:
                why = f"{item} of {tensor.nbytes:,} bytes ends after the end of the file ({self._size:,} bytes)"
                raise self._error(why, cut=True)
            if tensor.name in located:
                raise self._error(f"{item} occurs twice")
            if tensor.offset < end:
                raise self._error(f"tensors {quote(last)} and {quote(tensor.name)} overlap")
            located[tensor.name] = tensor
            end, last = tensor.offset + tensor.nbytes, tensor.name
        return {entry.name: located[entry.name] for entry in entries}

    def _name(self, item: str) -> str:
        raw = self._string(MAX_NAME, item)
        if not raw or b"\0" in raw:
            raise self._error(f"{item} is empty or contains a NUL")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._error(f"{item} is not valid UTF-8") from None

    def _string(self, limit: int, item: str) -> bytes:
        length = self._number(UINT64, item)
        if length > limit:
            raise self._error(f"{item} is {length:,} bytes; the maximum is {limit:,}")
        return self._take(length, item)

    def _number(self, form: struct.Struct, item: str) -> Any:
        return form.unpack(self._take(form.size, item))[0]

    def _take(self, nbytes: int, item: str) -> bytes:
        self._skip(nbytes, item)
        return bytes(self._data[self._position - nbytes : self._position])

    def _skip(self, nbytes: int, item: str) -> None:
        """Move past the next bytes, reading more of the file if necessary."""
        if nbytes > self._size - self._position:
            raise self._error(f"it ends before {item}", cut=True)
        self._position += nbytes
        if self._position > MAX_HEADER:
            raise self._error(f"its header is larger than {MAX_HEADER:,} bytes")
        while len(self._data) < self._position:
            more = self._file.read(len(self._data), len(self._data) + WINDOW)
            if not more:  # the file has been truncated
                raise self._error(f"it ends before {item}", cut=True)
            self._data += more

    def _skip_strings(self, count: int, item: str) -> None:
        """Skip strings. Inlined for speed because a vocabulary has hundreds of thousands of strings."""
        unpack, width, data, position = UINT64.unpack_from, UINT64.size, self._data, self._position
        end = len(data)
        for _ in range(count):
            if position + width > end:
                self._position = position
                self._skip(width, item)
                end = len(data)
            position += width + unpack(data, position)[0]
            if position > end:
                self._position = end
                self._skip(position - end, item)
                end = len(data)
        self._position = position

    def _error(self, why: str, *, cut: bool = False) -> CheckpointError:
        return unreadable_file_error("GGUF", str(self._file), why, cut=cut)
