"""Stores for remote checkpoints: safetensors and GGUF, read by byte range.

[checkpoint] -> Embeddings, Head, tokenizer
- the same stores as for local files, with other ways to read a header, a tensor and rows
- config.json and tokenizer files are downloaded whole; they have size limits
- the index of a model with many experts is larger than its tokenizer, and usually names the table near its start or its
  end: these two parts are searched first. What a search finds is a hint; the header of the file it names decides
- nothing in the folder is executed, and file names in an index are plain names or an error
- elsewhere: old PyTorch files, which cannot be read by byte range: the error tells how to download them
Tested with a local hub and other servers in tests/checkpoint/remote/test_store.py.
"""

from __future__ import annotations

import atexit
import json
import math
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.folder import INDEX, MAX_INDEX, PLAIN_FILE, FolderStore, check_file, parse_index
from inlayer.checkpoint.gguf import GgufStore
from inlayer.checkpoint.remote.cache import digest, open_cache
from inlayer.checkpoint.remote.remote_rows import RemoteRows
from inlayer.checkpoint.remote.source import RemoteFile, RemoteFolder, parse_source
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, MissingExtraError, MissingFileError
from inlayer.families.fields import read_config
from inlayer.files import listing, printable, write_atomic
from inlayer.formats.gguf import GgufHeader, parse_gguf_header
from inlayer.formats.row_file import FileRows
from inlayer.formats.safetensors import LENGTH_BYTES, TensorInfo, header_length, parse_header
from inlayer.tables.stored import RowSource
from inlayer.tokenizers import Tokenizer, open_tokenizer
from inlayer.tokenizers.open import FILE_NAMES, FILE_PATTERNS

__all__ = ["RemoteGgufStore", "RemoteStore", "open_remote"]

Bytes = npt.NDArray[np.uint8]

SINGLE = "model.safetensors"
BESIDE_TOKENIZER = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "pat_str.txt")
START = 64 << 10  # bytes; the whole header of most files, and the whole index of most models
MAX_SHARDS = 256  # whose headers are read without an index
MAX_SMALL_FILE = 256 << 20  # bytes; the largest tokenizer files have 35 MB
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def open_remote(source: str) -> Store:
    """Open `org/name[@revision]`, `hf://org/name`, or a folder or file behind a URL."""
    try:
        import fsspec  # noqa: F401
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "remote checkpoints need huggingface_hub and fsspec, which are not installed: pip install 'inlayer[hub]'"
        ) from error
    folder, file = parse_source(source, open_cache())
    if file is None and not any(name.endswith(".safetensors") for name in folder.files or ()):
        found = [name for name in folder.files or () if name.endswith(".gguf")]
        found = [name for name in found if "-00001-of-" in name] or found
        if len(found) > 1:
            names = printable(listing(found))
            example = f"{folder.example}{printable(found[0])}"
            raise CheckpointError(f"{folder.label} has several .gguf files; name one, such as {example}: {names}")
        file = found[0] if found else None
    if file is not None and file.endswith(".gguf"):
        return RemoteGgufStore(folder, file)
    return RemoteStore(folder, file)


class RemoteIndex(Mapping[str, str]):
    """The weight_map of a checkpoint, file by tensor name. Its start and its end are read first, then everything."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, size = file, file.size
        if size > MAX_INDEX:
            raise CheckpointError(f"{file} has {size:,} bytes; an index has at most {MAX_INDEX:,}")
        self._ends = [file.read(0, min(START, size)), file.read(max(START, size - START), size)]

    @cached_property
    def files(self) -> Mapping[str, str]:
        """File by tensor name for all tensors; reads the whole index."""
        return parse_index(self._file.read_all(MAX_INDEX), str(self._file))

    def search(self, pattern: bytes) -> str | None:
        """The first group of a pattern in the start or the end of the index."""
        found = next(filter(None, (re.search(pattern, part) for part in self._ends)), None)
        return None if found is None else found[1].decode(errors="replace")

    def first_of(self, names: Sequence[str]) -> str | None:
        """The first of these names that is in the index; of its start and end, while one of them is there."""
        return next(filter(self._hint, names), None) or next((name for name in names if name in self.files), None)

    def _hint(self, name: str) -> str | None:
        found = self.search(rb"(?<!\\)" + re.escape(json.dumps(name).encode()) + rb'\s*:\s*"([^"\\]{0,1000})"')
        return None if found is None else check_file(found, name, str(self._file))

    def __getitem__(self, name: str) -> str:
        return self._hint(name) or self.files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


class RemoteStore(FolderStore):
    """Safetensors in a remote folder, or one remote file."""

    remote = True

    def __init__(self, folder: RemoteFolder, file: str | None = None) -> None:
        self.kind, self.where, self._remote = folder.kind, folder.label + (file or ""), folder
        self._headers, self._index, self._files = {}, None, {file or ""}
        config = self._beside("config.json")
        self.config = read_config(config) if config.is_file() else None
        if file is None and folder.has(INDEX):
            self._index = RemoteIndex(folder.open(INDEX))
        elif file is None:
            self._files = self._weight_files()
        if self._index is None:
            self.names()  # a missing file is an error now, not later

    def first_of(self, candidates: Sequence[str]) -> str | None:
        return (
            self._index.first_of(candidates) if isinstance(self._index, RemoteIndex) else super().first_of(candidates)
        )

    def open_tokenizer(self) -> Tokenizer | None:
        found = [name for name in FILE_NAMES if self._remote.has(name)] or [
            file for pattern in FILE_PATTERNS for file in self._remote.files or () if fnmatchcase(file, pattern)
        ]
        if not found:
            return None
        return open_tokenizer(save_locally(self._remote, [found[0], *BESIDE_TOKENIZER]) / found[0])

    def parameters(self) -> int | None:
        if not isinstance(self._index, RemoteIndex):
            return sum(math.prod(stored.shape) for stored in self._found.values())
        config = self.config or {}
        total, size = (
            self._index.search(rb'"%s"\s*:\s*([0-9]{1,18})\s*[,}]' % name)
            for name in (b"total_parameters", b"total_size")
        )
        item = ITEM_BYTES.get(str(config.get("dtype") or config.get("torch_dtype")))
        if total is not None or size is None or item is None or "quantization_config" in config:
            return None if total is None else int(total)
        return int(size) // item

    def _beside(self, name: str) -> Path:
        return save_locally(self._remote, [name]) / name

    def _header(self, file: str) -> dict[str, TensorInfo]:
        if file not in self._headers:
            remote = self._remote.open(file)
            start, where = remote.read(0, START), str(remote)
            stop = LENGTH_BYTES + header_length(start, remote.size, where)
            data = (start + remote.read(len(start), stop))[LENGTH_BYTES:stop]
            self._headers[file] = parse_header(data, remote.size, where, file=file)
        return self._headers[file]

    def _read_bytes(self, stored: TensorInfo) -> Bytes:
        return read_bytes(self._remote.open(stored.file), stored.offset, stored.nbytes)

    def _open_rows(self, stored: TensorInfo) -> RowSource:
        return open_rows(self._remote.open(stored.file), stored)

    def _weight_files(self) -> set[str]:
        """The safetensors files of a folder without index, or an error that says what it has instead."""
        if self._remote.has(SINGLE):
            return {SINGLE}
        files = self._remote.files or []
        found = {file for file in files if file.endswith(".safetensors") and PLAIN_FILE.fullmatch(file)}
        if len(found) > MAX_SHARDS:
            raise CheckpointError(f"{self.where} has {len(found)} safetensors files but no {INDEX}")
        others = [file for file in files if file.endswith((".bin", ".pt", ".pth"))]
        if not found and others:
            raise CheckpointError(
                f"{self.where} has no safetensors, only {printable(listing(others, limit=3))}, which cannot be read by "
                "byte range; download it and open the local file"
            )
        if not found:
            raise MissingFileError(f"{self.where} has no weights: neither {INDEX} nor {SINGLE} nor other safetensors")
        return found


class RemoteGgufStore(GgufStore):
    """A remote .gguf file, or several that name each other."""

    remote = True

    def __init__(self, folder: RemoteFolder, file: str) -> None:
        self._remote, self.where = folder, folder.label + file
        super().__init__(Path(file))

    def _read_header(self, path: Path) -> GgufHeader:
        file = self._remote.open(path.name)
        return parse_gguf_header(file.read, file.size, path)

    def _exists(self, path: Path) -> bool:
        return self._remote.has(path.name)

    def _read_bytes(self, file: str, offset: int, nbytes: int) -> Bytes:
        return read_bytes(self._remote.open(file), offset, nbytes)

    def _open_rows(self, stored: TensorInfo) -> RowSource:
        return open_rows(self._remote.open(stored.file), stored)


def save_locally(folder: RemoteFolder, names: Iterable[str]) -> Path:
    """Download small files, those that exist, to a local folder whose name depends on their content."""
    files = {name: folder.open(name).read_all(MAX_SMALL_FILE) for name in names if folder.has(name)}
    local = folder.cache.make_folder(digest(*(f"{name} {digest(data)}" for name, data in files.items())))
    if local is None:
        local = Path(tempfile.mkdtemp(prefix="inlayer-"))
        atexit.register(shutil.rmtree, local, ignore_errors=True)
    for name, data in files.items():
        path = local / name
        if not path.is_file() or path.read_bytes() != data:
            write_atomic(path, data)
    return local


def read_bytes(file: RemoteFile, offset: int, nbytes: int) -> Bytes:
    """A range of a remote file as an array that can be written."""
    data = np.frombuffer(bytearray(file.read(offset, offset + nbytes)), np.uint8)
    if len(data) != nbytes:
        raise CheckpointError(f"{file} ends before byte {offset + nbytes:,}; was it truncated when it was uploaded?")
    return data


def open_rows(file: RemoteFile, stored: TensorInfo) -> RowSource:
    """The rows of a tensor: in a local copy if there is one."""
    rows = stored.shape[0]
    place = (stored.offset, rows, stored.nbytes // rows)
    return FileRows(file.local, *place) if file.local is not None else RemoteRows(file, *place)
