"""A .gguf file as a store: its tensors found, its config and tokenizer handed on.

[checkpoint] -> Embeddings, Head, tokenizer
- opening reads the header alone; a table's rows are read and decoded when they are looked up, the arrays of the
  vocabulary when the tokenizer is asked for
- a model in several files (`x-00001-of-00003.gguf`) is opened by any of them; all must be there, since only all of them
  tell whether a tensor (the head's) exists
- not here: reading the header (formats/gguf.py), what the metadata means (families/gguf.py, tokenizers/gguf.py),
  how rows are decoded (formats/ggml.py)
Checked against the `gguf` package, and with damaged files, in tests/checkpoint/test_gguf.py.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, DtypeError, InlayerError, InputError, ShapeError, TokenizerError
from inlayer.families.gguf import ROPE_FACTORS, config_from_gguf
from inlayer.formats.ggml import PLAIN, decoder, row_bytes
from inlayer.formats.gguf import SCALARS, STRING, UINT64, GgufHeader, StoredArray, quoted, read_gguf_header
from inlayer.formats.row_file import FileRows, read_span
from inlayer.formats.safetensors import TensorInfo
from inlayer.paths import shown, what_is_at
from inlayer.tables import StoredTable
from inlayer.tables.mapped import listing
from inlayer.tables.stored import RowSource
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.gguf import TOKENIZER_ARRAYS, open_gguf_tokenizer

__all__ = ["GgufStore"]

MAX_PARTS = 10_000
MAX_FACTORS = 1 << 12  # of a rotary table: one a channel pair
PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class GgufStore(Store):
    """A model in one .gguf file, or in several that name each other."""

    kind = "gguf"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = getattr(self, "where", shown(path))
        header = self._read_header(path)
        self._folder, self._first, self._tensors = path.parent, path, dict(header.tensors)
        if _whole_number(header.metadata, "split.count", 1) > 1:
            header = self._join(header)
        self.metadata = header.metadata
        try:
            self.config = self._translate()
        except InlayerError as error:
            raise CheckpointError(f"{self.where}: {error}") from error

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def find(self, name: str) -> TensorInfo:
        if name not in self._tensors:
            raise InputError(f"{self.where} has no tensor {name!r}; it has {listing(self._tensors)}")
        return self._tensors[name]

    def read(self, name: str) -> Tensor:
        stored = self.find(name)
        width = stored.shape[-1] if stored.shape else 1
        decode = decoder(stored.dtype, width)
        raw = self._read_bytes(stored.file, stored.offset, stored.nbytes)
        if decode is None:
            return torch.from_numpy(raw).view(PLAIN[stored.dtype]).view(stored.shape)
        return decode(raw.reshape(-1, row_bytes(stored.dtype, width))).view(stored.shape)

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        stored = self.find(name)
        if len(stored.shape) != 2:
            raise ShapeError(f"tensor {name!r} of {self.where} has shape {stored.shape}; a table is (V, D)")
        width = stored.shape[1]
        try:
            decode = decoder(stored.dtype, width)
        except DtypeError as error:
            raise DtypeError(f"tensor {name!r} of {self.where}: {error}") from error
        source = self._open_rows(stored)
        dtype = PLAIN.get(stored.dtype, torch.float32)
        return StoredTable(source, width, dtype, decode=decode, padding_idx=padding_idx, name=name)

    def open_tokenizer(self) -> Tokenizer | None:
        prefix = "tokenizer.ggml."
        if self.metadata.get(f"{prefix}model", "none") in {"none", "no_vocab"}:
            return None
        fields = {
            key.removeprefix(prefix): value
            for key, value in self.metadata.items()
            if key.startswith(prefix) and not isinstance(value, StoredArray)
        }
        for name in TOKENIZER_ARRAYS:
            array = self.metadata.get(prefix + name)
            if isinstance(array, StoredArray):
                fields[name] = self._read_array(prefix + name, array)
        return open_gguf_tokenizer(fields, where=self.where)

    def parameters(self) -> int | None:
        return sum(math.prod(stored.shape) for stored in self._tensors.values())

    def _join(self, opened: GgufHeader) -> GgufHeader:
        """Read the other parts of a model in several files; the header that counts is the first part's."""
        count = _whole_number(opened.metadata, "split.count", 1)
        name = PART.fullmatch(self.path.name)
        if name is None or int(name["count"]) != count or count > MAX_PARTS:
            raise CheckpointError(
                f"{self.where} is one of {count:,} parts, but its name does not say which; the parts of a model are "
                "named like x-00001-of-00003.gguf"
            )
        paths = [self._folder / f"{name['stem']}-{number:05}-of-{count:05}.gguf" for number in range(1, count + 1)]
        missing = [path.name for path in paths if not self._exists(path)]
        if missing:
            raise CheckpointError(
                f"{self.where} is one of {count} parts, and {shown(missing[0])} is not beside it"
                + (f", nor are {len(missing) - 1} more" if len(missing) > 1 else "")
            )
        headers = [opened if path.name == self.path.name else self._read_header(path) for path in paths]
        self._first, self._tensors = paths[0], {}
        for number, (path, header) in enumerate(zip(paths, headers, strict=True)):
            place = _whole_number(header.metadata, "split.no", -1), _whole_number(header.metadata, "split.count", 1)
            if place != (number, count):
                raise CheckpointError(f"{shown(path)} says that it is part {place[0] + 1} of {place[1]}")
            twice = next((found for found in header.tensors if found in self._tensors), None)
            if twice is not None:
                raise CheckpointError(f"{shown(path)} holds {quoted(twice)}, and so does another part")
            self._tensors.update(header.tensors)
        return headers[0]

    # What a remote file does differently (checkpoint/remote/store.py):

    def _read_header(self, path: Path) -> GgufHeader:
        return read_gguf_header(path)

    def _exists(self, path: Path) -> bool:
        return what_is_at(path) == "file"

    def _read_bytes(self, file: str, offset: int, nbytes: int) -> npt.NDArray[np.uint8]:
        return read_span(self._folder / file, offset, nbytes)

    def _open_rows(self, stored: TensorInfo) -> RowSource:
        rows = stored.shape[0]
        return FileRows(self._folder / stored.file, stored.offset, rows, stored.nbytes // rows)

    def _translate(self) -> dict[str, Any] | None:
        factors: dict[str, list[float]] = {}
        for name in ROPE_FACTORS:
            if name in self._tensors and math.prod(self._tensors[name].shape) <= MAX_FACTORS:
                factors[name] = self.read(name).double().flatten().tolist()
        said = {key: value for key, value in self.metadata.items() if not isinstance(value, StoredArray)}
        shapes = {name: stored.shape for name, stored in self._tensors.items()}
        return config_from_gguf(said, shapes, factors)

    def _read_array(self, key: str, array: StoredArray) -> Any:
        """Strings as a list, numbers as an array; None for arrays within arrays, which no tokenizer has."""
        data = self._read_bytes(self._first.name, array.offset, array.nbytes).tobytes()
        if array.kind in SCALARS:
            return np.frombuffer(data, SCALARS[array.kind])
        if array.kind != STRING:
            return None
        texts, place = [], 0
        try:
            for _ in range(array.count):
                (length,) = UINT64.unpack_from(data, place)
                place += UINT64.size + length
                texts.append(data[place - length : place].decode())
        except UnicodeDecodeError:
            raise TokenizerError(f"{self.where}: entry {len(texts)} of {key} is not UTF-8 text") from None
        except struct.error:
            raise CheckpointError(f"{self.where} was changed while it was open; open it again") from None
        return texts


def _whole_number(metadata: Mapping[str, Any], key: str, otherwise: int) -> int:
    value = metadata.get(key, otherwise)
    return value if type(value) is int else otherwise
