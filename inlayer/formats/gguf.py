"""The header of a GGUF file, read as a stranger's: its keys and values, its tensors and where their bytes lie.

[checkpoint] -> Embeddings, Head, tokenizer
- the file: magic, version, two counts, typed keys and values, the tensors' names and places, then their bytes
- it is read through a window that moves over the file; every count and length is compared with the bytes that are left
  before anything is made or repeated by it, and the whole header, its keys, texts and tensors are capped
- arrays (a vocabulary has hundreds of thousands of texts) are measured, not read: who needs one reads it by its place.
  The `gguf` package's reader makes an object of each text first (docs/decisions.md has the times)
- not here: what is done with it (checkpoint/gguf.py)
Checked against the `gguf` package, and with damaged files, in tests/checkpoint/test_gguf.py.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inlayer.errors import CheckpointError
from inlayer.files import not_a_file, path_kind, shown
from inlayer.formats.ggml import GGML_TYPES, row_bytes
from inlayer.formats.safetensors import TensorInfo

__all__ = [
    "SCALARS",
    "STRING",
    "UINT64",
    "GgufHeader",
    "StoredArray",
    "parse_gguf_header",
    "quoted",
    "read_gguf_header",
]

ReadRange = Callable[[int, int], bytes]  # start, stop -> the bytes between; fewer at the end of the file

MAGIC = b"GGUF"
WINDOW = 1 << 20
MAX_HEADER = 64 << 20  # bytes; the largest vocabularies with their merges take a third of it
MAX_TEXT = 16 << 20
MAX_NAME = 1 << 16  # of a key or a tensor
MAX_KEYS = 1 << 12
MAX_TENSORS = 1 << 15  # experts are stacked: the largest models have some thousands
MAX_TEXTS = 3 << 19  # in all arrays together: each takes a step of its own. Real files have half of it
MAX_INNER_ARRAYS = 1 << 14  # no real file has any
MAX_DEPTH = 4  # arrays within arrays
MAX_AXES = 4
MAX_ALIGNMENT = 1 << 16

STRING, ARRAY, BOOLEAN = 8, 9, 7
SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", BOOLEAN: "<B", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
FORMS = {kind: struct.Struct(form) for kind, form in SCALARS.items()}
TENSOR_FORMS = [struct.Struct(f"<{axes}QIQ") for axes in range(MAX_AXES + 1)]  # sizes, type, offset
UINT32, UINT64 = struct.Struct("<I"), struct.Struct("<Q")
KIND_OF_NUMBER = {ggml_type.number: name for name, ggml_type in GGML_TYPES.items()}


@dataclass(frozen=True)
class StoredArray:
    """An array among the metadata that was measured and left in the file."""

    kind: int  # of its entries, as the file numbers types
    count: int
    offset: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class GgufHeader:
    """All that a file says before its tensors' bytes. A value is a number, a bool, a text or a `StoredArray`."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]


def parse_gguf_header(read: ReadRange, size: int, path: Path) -> GgufHeader:
    """The header of a GGUF file of `size` bytes; `read(start, stop)` returns bytes of it, `path` is for messages."""
    return _Reader(read, size, path).header()


def read_gguf_header(path: Path) -> GgufHeader:
    """Everything before the tensors' bytes, compared with the file's size and with itself."""
    kind = path_kind(path)
    if kind != "file":
        raise not_a_file(path, kind)
    try:
        with path.open("rb") as stream:

            def read(start: int, stop: int) -> bytes:
                stream.seek(start)
                return stream.read(stop - start)

            return parse_gguf_header(read, path.stat().st_size, path)
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}") from error


class _Reader:
    """A window that moves over the header, never past the end of the file."""

    def __init__(self, read: ReadRange, size: int, path: Path) -> None:
        self._read, self._size, self._path = read, size, path
        self._window, self._start, self._place = b"", 0, 0  # the window's place in the file, our place in the window
        self._entries = {STRING: 0, ARRAY: 0}  # of all arrays so far

    def header(self) -> GgufHeader:
        tensor_count, key_count = self._counts()
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            key = self._name("a key")
            if key in metadata:
                raise self._unreadable(f"the key {quoted(key)} stands there twice")
            metadata[key] = self._value(self._number(UINT32, "the type of a value"), key)
        found = [self._tensor() for _ in range(tensor_count)]
        alignment = metadata.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            raise self._unreadable(
                f"its alignment is {quoted(alignment)}; it is a power of two up to {MAX_ALIGNMENT:,}"
            )
        return GgufHeader(metadata=metadata, tensors=self._placed(found, alignment))

    def _counts(self) -> tuple[int, int]:
        start = self._take(min(8, self._size), "the beginning")
        if start.startswith(b"version "):
            raise self._unreadable("it is a git-lfs pointer; fetch the file with `git lfs pull`")
        if not start.startswith(MAGIC):
            raise self._unreadable("it does not begin with the letters GGUF")
        if len(start) < 8:
            raise self._cut("the version")
        version = int.from_bytes(start[4:], "little")
        if version not in (2, 3):
            swapped = int.from_bytes(start[4:], "big")
            why = "it is a big-endian file" if 1 <= swapped <= 3 else f"it has version {version:,}"
            raise self._unreadable(f"{why}; little-endian files of version 2 and 3 are read")
        tensor_count, key_count = self._number(UINT64, "a count"), self._number(UINT64, "a count")
        # the least bytes each takes: a length, one character and a type, then a byte or axes and an offset
        for what, count, least, most in (
            ("tensors", tensor_count, 25, MAX_TENSORS),
            ("keys", key_count, 14, MAX_KEYS),
        ):
            if count > most:
                raise self._unreadable(f"it claims {count:,} {what}; at most {most:,} are believed")
            if count * least > self._left:
                raise self._cut(f"{count:,} {what}")
        return tensor_count, key_count

    def _value(self, kind: int, key: str) -> Any:
        if kind in SCALARS:
            (value,) = FORMS[kind].unpack(self._take(FORMS[kind].size, f"the value of {quoted(key)}"))
            if kind == BOOLEAN and value > 1:
                raise self._unreadable(f"{quoted(key)} is a bool with the value {value}")
            return bool(value) if kind == BOOLEAN else value
        if kind == STRING:
            return self._text(MAX_TEXT, f"the value of {quoted(key)}").decode(errors="replace")
        if kind == ARRAY:
            return self._array(key, 1)
        raise self._unreadable(f"{quoted(key)} has the unknown type {kind}")

    def _array(self, key: str, depth: int) -> StoredArray:
        """Measure an array without keeping what is in it."""
        what = f"the array {quoted(key)}"
        kind, count = self._number(UINT32, what), self._number(UINT64, what)
        least = {STRING: 8, ARRAY: 12}.get(kind) or (FORMS[kind].size if kind in SCALARS else 0)
        if not least:
            raise self._unreadable(f"{what} has entries of the unknown type {kind}")
        if count * least > self._left:
            raise self._cut(f"the {count:,} entries of {what}")
        start = self._start + self._place
        if kind in SCALARS:
            self._skip(count * least, what)
            return StoredArray(kind, count, start, count * least)
        self._entries[kind] += count
        if self._entries[STRING] > MAX_TEXTS or self._entries[ARRAY] > MAX_INNER_ARRAYS:
            raise self._unreadable(f"its arrays hold more than {MAX_TEXTS:,} texts or {MAX_INNER_ARRAYS:,} arrays")
        if kind == STRING:
            self._skip_texts(count, what)
        elif depth == MAX_DEPTH:
            raise self._unreadable(f"{what} is nested more than {MAX_DEPTH} deep")
        else:
            for _ in range(count):
                self._array(key, depth + 1)
        return StoredArray(kind, count, start, self._start + self._place - start)

    def _tensor(self) -> tuple[str, str, tuple[int, ...], int]:
        """Name, type, shape and offset, still to be compared with the file."""
        name = self._name("a tensor's name")
        what = f"tensor {quoted(name)}"
        axes = self._number(UINT32, what)
        if axes > MAX_AXES:
            raise self._unreadable(f"{what} has {axes:,} axes; at most {MAX_AXES} are known")
        form = TENSOR_FORMS[axes]
        *sizes, number, offset = form.unpack(self._take(form.size, what))
        shape = tuple(reversed(sizes))  # the file gives the fastest axis first
        if 0 in shape:
            raise self._unreadable(f"{what} is empty: its shape is {shape}")
        if number not in KIND_OF_NUMBER:
            raise self._unreadable(f"{what} has the unknown type {number:,}")
        return name, KIND_OF_NUMBER[number], shape, offset

    def _placed(self, found: list[tuple[str, str, tuple[int, ...], int]], alignment: int) -> dict[str, TensorInfo]:
        """The tensors, each within the file, none over another."""
        start = -(-(self._start + self._place) // alignment) * alignment
        tensors: dict[str, TensorInfo] = {}
        for name, kind, shape, offset in found:
            width = shape[-1] if shape else 1
            if width % GGML_TYPES[kind].block:
                raise self._unreadable(f"tensor {quoted(name)} is {kind} with rows of {width:,}, no whole blocks")
            nbytes = math.prod(shape[:-1]) * row_bytes(kind, width)
            if offset % alignment:
                raise self._unreadable(f"tensor {quoted(name)} at {offset:,} does not lie on its alignment {alignment}")
            if start + offset + nbytes > self._size:
                why = f"tensor {quoted(name)} of {nbytes:,} bytes ends past the file's {self._size:,}"
                raise self._unreadable(why, cut=True)
            if name in tensors:
                raise self._unreadable(f"tensor {quoted(name)} stands there twice")
            tensors[name] = TensorInfo(
                name=name, dtype=kind, shape=shape, file=self._path.name, offset=start + offset, nbytes=nbytes
            )
        end, last = start, "the header"
        for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
            if tensor.offset < end:
                raise self._unreadable(f"tensors {quoted(last)} and {quoted(tensor.name)} overlap in it")
            end, last = tensor.offset + tensor.nbytes, tensor.name
        return tensors

    def _name(self, what: str) -> str:
        raw = self._text(MAX_NAME, what)
        if not raw or b"\0" in raw:
            raise self._unreadable(f"{what} is empty or holds a NUL")
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self._unreadable(f"{what} is not UTF-8 text") from None

    def _text(self, longest: int, what: str) -> bytes:
        length = self._number(UINT64, what)
        if length > longest:
            raise self._unreadable(f"{what} claims {length:,} bytes; at most {longest:,} are believed")
        return self._take(length, what)

    def _number(self, form: struct.Struct, what: str) -> int:
        return int(form.unpack(self._take(form.size, what))[0])

    @property
    def _left(self) -> int:
        return self._size - self._start - self._place

    def _take(self, nbytes: int, what: str) -> bytes:
        self._hold(nbytes, what)
        begin = self._place
        self._skip(nbytes, what)
        return self._window[begin : self._place]

    def _hold(self, nbytes: int, what: str) -> None:
        """Move the window, where the next bytes are not all in it."""
        if nbytes > self._left:
            raise self._cut(what)
        if self._place + nbytes > len(self._window):
            self._start, self._place = self._start + self._place, 0
            self._window = self._read(self._start, self._start + max(WINDOW, nbytes))
            if len(self._window) < nbytes:  # the file is shorter than it was a moment ago
                raise self._cut(what)

    def _skip(self, nbytes: int, what: str) -> None:
        if nbytes > self._left:
            raise self._cut(what)
        if self._start + self._place + nbytes > MAX_HEADER:
            raise self._unreadable(f"its header goes past the {MAX_HEADER:,} bytes that are read")
        self._place += nbytes

    def _skip_texts(self, count: int, what: str) -> None:
        """As `_text` for each of them. Written out: a vocabulary has hundreds of thousands."""
        unpack, width = UINT64.unpack_from, UINT64.size
        window, place, end = self._window, self._place, len(self._window)
        for _ in range(count):
            if place + width > end:
                self._place = place
                self._hold(width, what)
                window, place, end = self._window, self._place, len(self._window)
            place += width + unpack(window, place)[0]
            if place > end:
                nbytes, self._place = place - end, end
                self._skip(nbytes, what)
        self._place = place

    def _cut(self, what: str) -> CheckpointError:
        return self._unreadable(f"it ends before {what}", cut=True)

    def _unreadable(self, why: str, *, cut: bool = False) -> CheckpointError:
        cause = "; was the download cut short?" if cut else ""
        return CheckpointError(f"{shown(self._path)} is not a readable GGUF file: {why}{cause}")


def quoted(value: object) -> str:
    """A stranger's word, short and on one line: what does not print is escaped."""
    text = str(value)
    return repr(text[:60]) + ("..." if len(text) > 60 else "")
