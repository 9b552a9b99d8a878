"""GgufStore: a model in one .gguf file, or in several (`x-00001-of-00003.gguf`).

source -> [Store] -> Model
- opening reads only the header. Rows are read and decoded when they are looked up, and the vocabulary is read with
  the tokenizer
- all files must be present because a missing one could contain the head
- see also: header (formats/gguf_header.py), rows (formats/dequantization.py), the meaning of the metadata
  (families/gguf_config.py, tokenizers/gguf_tokenizer.py)
Tested against the `gguf` package, and with damaged files, in tests/checkpoint/test_gguf_store.py.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np

from inlayer.checkpoint.folder import Folder
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, ConfigError, DtypeError, InlayerError, InputError, TokenizerError
from inlayer.families.gguf_config import ARRAYS, LAYER_TYPES, ROPE_FACTORS, config_from_gguf
from inlayer.files import join_names, quote
from inlayer.formats.dequantization import PLAIN, make_dequantizer
from inlayer.formats.gguf_header import SCALARS, STRING, GgufHeader, HeaderReader, StoredArray
from inlayer.formats.tensor_info import TensorInfo
from inlayer.tables.stored_table import Decoder
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.gguf_tokenizer import TOKENIZER_ARRAYS, open_gguf_tokenizer

MAX_PARTS = 10_000
MAX_FACTORS = 1 << 12  # one per channel pair
MAX_ENTRIES = 1 << 12  # one per layer
PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


def choose_gguf(names: Iterable[str], source: str) -> str | None:
    """Return the .gguf file of a folder, or the first part of a model in parts; several models are an error."""
    files = [name for name in names if name.endswith(".gguf")]
    firsts = [name for name in files if re.search(r"-0*1-of-\d+\.gguf$", name)] or files
    if len(firsts) > 1:
        raise CheckpointError(f"{source} has several .gguf files; open one of them: {join_names(firsts)}")
    return firsts[0] if firsts else None


class GgufStore(Store):
    """A model in one .gguf file, or in several numbered ones."""

    kind = "gguf"

    def __init__(self, files: Folder, file: str) -> None:
        super().__init__(files, file)
        header = self._read_header(file)
        self._first, self._tensors = file, dict(header.tensors)
        if _integer(header.metadata, "split.count", 1) > 1:
            header = self._join(file, header)
        self.metadata = header.metadata
        values = {key: self._value(key) for key in self.metadata}
        shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        divisors = {name: shapes[name] for name in ROPE_FACTORS if name in shapes}
        try:
            for name, shape in divisors.items():
                if len(shape) != 1 or shape[0] > MAX_FACTORS:
                    raise ConfigError(f"its {name} has shape {quote(shape)}; expected one divisor per channel pair")
            factors = {name: self.read(name).astype(np.float64).tolist() for name in divisors}
            self.config = config_from_gguf(values, shapes, factors)
        except InlayerError as error:
            raise CheckpointError(f"{self.source}: {error}") from error

    def _value(self, key: str) -> Any:
        """Return a metadata value for the config; an array only if it is short and the config needs it."""
        value = self.metadata[key]
        if not isinstance(value, StoredArray):
            return value
        if not key.endswith(ARRAYS) or value.count > MAX_ENTRIES or value.kind not in {*SCALARS, STRING}:
            return None
        values = self._read_array(key, value)
        if value.kind == STRING:
            return values if key.endswith(LAYER_TYPES) else None
        return values.tolist()

    def names(self) -> Collection[str]:
        return self._tensors.keys()

    def find(self, name: str) -> TensorInfo:
        if name not in self._tensors:
            raise InputError(f"{self.source} has no tensor {quote(name)}; it has {join_names(self._tensors)}")
        return self._tensors[name]

    def _encoding(self, tensor: TensorInfo) -> tuple[np.dtype[Any], Decoder | None]:
        try:
            decode_rows = make_dequantizer(tensor.dtype, tensor.shape[-1] if tensor.shape else 1)
        except DtypeError as error:
            raise DtypeError(f"tensor {quote(tensor.name)} of {self.source}: {error}") from error
        return PLAIN.get(tensor.dtype, np.dtype(np.float32)), decode_rows

    def open_tokenizer(self) -> Tokenizer | None:
        prefix = "tokenizer.ggml."
        if self.metadata.get(f"{prefix}model", "none") in {"none", "no_vocab"}:
            return None
        fields: dict[str, Any] = {}
        for key, value in self.metadata.items():
            name = key.removeprefix(prefix)
            if key.startswith(prefix) and (name in TOKENIZER_ARRAYS or not isinstance(value, StoredArray)):
                fields[name] = self._read_array(key, value) if isinstance(value, StoredArray) else value
        return open_gguf_tokenizer(fields, source=self.source)

    def parameters(self) -> int | None:
        return sum(math.prod(tensor.shape) for tensor in self._tensors.values())

    def _join(self, file: str, opened: GgufHeader) -> GgufHeader:
        """Read the headers of all parts of a model in several files; the metadata comes from the first part."""
        count = _integer(opened.metadata, "split.count", 1)
        name = PART.fullmatch(file)
        if name is None or int(name["count"]) != count or count > MAX_PARTS:
            named = "its name has no part number; it must be named like x-00001-of-00003.gguf"
            raise CheckpointError(f"{self.source} is one of {count:,} parts, but {named}")
        names = [f"{name['stem']}-{index:05}-of-{count:05}.gguf" for index in range(1, count + 1)]
        if missing := [part for part in names if not self.files.has(part)]:
            raise CheckpointError(f"{self.source} is one of {count} parts; its folder lacks {join_names(missing)}")
        headers = [opened if part == file else self._read_header(part) for part in names]
        self._first, self._tensors = names[0], {}
        for index, (part, header) in enumerate(zip(names, headers, strict=True)):
            source = self.files.describe(part)
            number, total = (_integer(header.metadata, key, -1) for key in ("split.no", "split.count"))
            if (number, total) != (index, count):
                stated = f"its header says part {number + 1} of {total}, but its file name says otherwise"
                raise CheckpointError(f"{source}: {stated}; restore the original name")
            if duplicate := next((name for name in header.tensors if name in self._tensors), None):
                raise CheckpointError(f"{source} contains {quote(duplicate)}, which is also in another part")
            self._tensors.update(header.tensors)
        return headers[0]

    def _read_header(self, file: str) -> GgufHeader:
        return HeaderReader(self.files.open(file), file).header()

    def _read_array(self, key: str, array: StoredArray) -> Any:
        """Strings as a list, numbers as an array, and None for nested arrays, which no tokenizer uses."""
        data = self.files.open(self._first).read_bytes(array.offset, array.nbytes).tobytes()
        if array.kind in SCALARS:
            return np.frombuffer(data, SCALARS[array.kind])
        if array.kind != STRING:
            return None
        texts, position = [], 0
        try:
            for _ in range(array.count):
                (length,) = struct.unpack_from("<Q", data, position)
                position += 8 + length
                texts.append(data[position - length : position].decode())
        except UnicodeDecodeError:
            raise TokenizerError(f"{self.source}: entry {len(texts)} of {key} is not valid UTF-8") from None
        except struct.error:
            raise CheckpointError(f"{self.source} was modified while it was open; open it again") from None
        return texts


def _integer(metadata: Mapping[str, Any], key: str, default: int) -> int:
    value = metadata.get(key, default)
    return value if type(value) is int else default
