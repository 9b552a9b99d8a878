"""Stores for remote checkpoints: safetensors and GGUF, read by byte range.

source -> [remote files] -> Store -> Model
- the index of a model with many experts is larger than its tokenizer, and usually names the table near its start or its
  end: these two parts are searched first. What a search finds is a hint; the header of the file it names decides
- a few rows: only those are fetched. Many: the table is downloaded once, then read from disk; a download can resume
- not supported: legacy PyTorch files, which cannot be read by byte range; the error explains how to download them
Tested with a local hub and other servers in test_remote_store.py and test_remote_rows.py of tests/checkpoint/remote/.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.find_quantized import packed_names
from inlayer.checkpoint.gguf_store import GgufStore, choose_gguf
from inlayer.checkpoint.remote.source import RemoteFile, RemoteFolder, parse_source
from inlayer.checkpoint.remote.transfer import CHECKSUM_BYTES, Span, UnreachableError, digest, open_cache, truncated
from inlayer.checkpoint.store import INDEX, MAX_INDEX, PLAIN_FILE, FolderStore, Store, check_file, parse_index
from inlayer.errors import CheckpointError, MissingFileError, needs_package
from inlayer.files import atomic_path, file_errors, join_names
from inlayer.formats.gguf_header import GgufHeader, HeaderReader
from inlayer.formats.row_reader import Bytes, FileRows, RowSource
from inlayer.formats.safetensors import LENGTH_BYTES, header_length, parse_header
from inlayer.formats.tensor_info import TensorInfo
from inlayer.tokenizers import Tokenizer, open_tokenizer
from inlayer.tokenizers.open import SIBLINGS, choose_file

SINGLE = "model.safetensors"
START = 64 << 10  # bytes; the whole header of most files, and the whole index of most models
MAX_SHARDS = 256  # shards whose headers are read if the index is missing
MAX_SMALL_FILE = 256 << 20  # bytes; the largest tokenizer files are 35 MB
ITEM_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
# Beyond either limit, downloading the whole table is faster than fetching rows.
MAX_FETCHED_SHARE = 1 / 8  # share of the table
MAX_FETCHED_BYTES = 128 << 20
MAX_GAP = 32 << 10  # bytes between two rows that cost less than a second request
MAX_REQUEST = 8 << 20  # bytes of neighboring rows in one request
BLOCK = 16 << 20  # bytes of a download that are synced to disk at a time
BLOCKS = 4  # blocks requested at a time


def open_remote(source: str) -> Store:
    """Open `org/name[@revision]`, `hf://org/name`, or a folder or file at a URL."""
    modules = "huggingface_hub", "fsspec"
    with needs_package("a remote checkpoint", " and ".join(modules), "'inlayer[hub]'", *modules):
        import fsspec  # noqa: F401
        import huggingface_hub  # noqa: F401
    folder, file = parse_source(source, open_cache())
    if file is None and not any(name.endswith(".safetensors") for name in folder.files or ()):
        file = choose_gguf(folder.files or (), folder.example)
    if file is not None and file.endswith(".gguf"):
        return RemoteGgufStore(folder, file)
    return RemoteStore(folder, file)


class RemoteIndex(Mapping[str, str]):
    """The weight_map of a checkpoint, file by tensor name. Its start and its end are read first, then everything."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, size = file, file.size
        if size > MAX_INDEX:
            raise CheckpointError(f"{file} is {size:,} bytes; the limit for an index is {MAX_INDEX:,}")
        self._ends = [file.read(0, min(START, size)), file.read(max(START, size - START), size)]

    @cached_property
    def files(self) -> Mapping[str, str]:
        """File by tensor name for all tensors; reads the whole index."""
        return parse_index(self._file.read(0, self._file.size), str(self._file))

    def search(self, pattern: bytes) -> str | None:
        """Return the first group of a pattern in the start or the end of the index."""
        match = next(filter(None, (re.search(pattern, part) for part in self._ends)), None)
        return None if match is None else match[1].decode(errors="replace")

    def hint(self, name: str) -> str | None:
        """Return the file of a tensor if the start or the end of the index names it."""
        file = self.search(rb"(?<!\\)" + re.escape(json.dumps(name).encode()) + rb'\s*:\s*"([^"\\]{0,1000})"')
        return None if file is None else check_file(file, name, str(self._file))

    def __getitem__(self, name: str) -> str:
        return self.hint(name) or self.files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


class RemoteReader(Store):
    """Tensors in remote files."""

    remote = True
    _remote: RemoteFolder

    def _exists(self, name: str) -> bool:
        return self._remote.has(name)

    def _read_bytes(self, file: str, offset: int, nbytes: int) -> Bytes:
        remote = self._remote.open(file)
        data = np.frombuffer(bytearray(remote.read(offset, offset + nbytes)), np.uint8)
        if len(data) != nbytes:
            raise truncated(remote, offset + nbytes)
        return data

    def open_rows(self, tensor: TensorInfo) -> RowSource:
        file, rows = self._remote.open(tensor.file), tensor.shape[0]
        if file.local is not None:
            return FileRows.for_tensor(file.local, tensor)
        return RemoteRows(file, tensor.offset, rows, tensor.nbytes // rows)


class RemoteStore(RemoteReader, FolderStore):
    """Safetensors in a remote folder, or one remote file."""

    def __init__(self, folder: RemoteFolder, file: str | None = None) -> None:
        self.kind, self.source, self._remote = folder.kind, folder.label + (file or ""), folder
        try:
            self._open(file)
        except UnreachableError as error:  # the message names the given source, not the first file that is read
            if file is None:
                raise
            message = str(error).replace(str(folder.open("config.json")), self.source)
            raise UnreachableError(message) from error.__cause__

    def find_first(self, candidates: Sequence[str]) -> str | None:
        if isinstance(index := self._index, RemoteIndex):
            hinted = (name for name in candidates if any(map(index.hint, (name, *packed_names(name)))))
            if (name := next(hinted, None)) is not None:
                return name
        return super().find_first(candidates)

    def open_tokenizer(self) -> Tokenizer | None:
        name = choose_file(self._remote.files or (), self._remote.has, self.source)
        if name is None:
            return None
        return open_tokenizer(save_locally(self._remote, [name, "config.json", *SIBLINGS]) / name)

    def parameters(self) -> int | None:
        if not isinstance(self._index, RemoteIndex):
            return super().parameters()
        config = self.config or {}
        total, size = (
            self._index.search(rb'"%s"\s*:\s*([0-9]{1,18})\s*[,}]' % name)
            for name in (b"total_parameters", b"total_size")
        )
        item = ITEM_BYTES.get(str(config.get("dtype") or config.get("torch_dtype")))
        if total is not None or size is None or item is None or "quantization_config" in config:
            return None if total is None else int(total)
        return int(size) // item

    def _local_path(self, name: str) -> Path:
        return save_locally(self._remote, [name]) / name

    def _read_index(self) -> RemoteIndex:
        return RemoteIndex(self._remote.open(INDEX))

    def _read_header(self, file: str) -> dict[str, TensorInfo]:
        remote = self._remote.open(file)
        start, source = remote.read(0, START), str(remote)
        stop = LENGTH_BYTES + header_length(start, remote.size, source)
        data = (start + remote.read(len(start), stop))[LENGTH_BYTES:stop]
        return parse_header(data, remote.size, source, file=file)

    def _weight_files(self) -> set[str]:
        """Return the safetensors files of a folder without index, or an error that lists what it has instead."""
        if self._remote.has(SINGLE):
            return {SINGLE}
        files = self._remote.files or []
        weights = {file for file in files if file.endswith(".safetensors") and PLAIN_FILE.fullmatch(file)}
        if len(weights) > MAX_SHARDS:
            raise CheckpointError(f"{self.source} has {len(weights)} safetensors files but no {INDEX}")
        others = [file for file in files if file.endswith((".bin", ".pt", ".pth"))]
        if not weights and others:
            hint = "which cannot be read by byte range; download it and open the local file"
            raise CheckpointError(f"{self.source} has no safetensors, only {join_names(others, limit=3)}, {hint}")
        if not weights:
            raise MissingFileError(f"{self.source} has no weights: neither {INDEX} nor {SINGLE} nor other safetensors")
        return weights


class RemoteGgufStore(RemoteReader, GgufStore):
    """A remote .gguf file, or the numbered parts of one model."""

    def __init__(self, folder: RemoteFolder, file: str) -> None:
        self._remote, self.source = folder, folder.label + file
        super().__init__(Path(file))

    def _read_header(self, path: Path) -> GgufHeader:
        file = self._remote.open(path.name)
        return HeaderReader(file.read, file.size, path).header()


def save_locally(folder: RemoteFolder, names: Iterable[str]) -> Path:
    """Download small files, skipping those that do not exist, to a local folder named by a hash of their content."""
    files = {name: folder.open(name).read_all(MAX_SMALL_FILE) for name in names if folder.has(name)}
    key = digest(*(f"{name} {digest(data)}" for name, data in files.items()))
    local = folder.cache.make_folder(key, sum(map(len, files.values())))
    if local is None:
        local = Path(tempfile.mkdtemp(prefix="inlayer-"))
        atexit.register(shutil.rmtree, local, ignore_errors=True)
    for name, data in files.items():
        path = local / name
        if not path.is_file() or path.read_bytes() != data:
            with atomic_path(path, secrets.token_hex(4)) as temporary:  # another process may write the same file
                temporary.write_bytes(data)
    return local


class RemoteRows(RowSource):
    """`rows` rows of `row_bytes` bytes each, starting at `offset` of a remote file."""

    def __init__(self, file: RemoteFile, offset: int, rows: int, row_bytes: int) -> None:
        self.file, self.offset, self.rows, self.row_bytes = file, offset, rows, row_bytes
        self._fetched = 0  # rows so far: a loop over the whole table soon switches to a download
        self._table: FileRows | None = None

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        unique, inverse = np.unique(ids, return_inverse=True)
        rows = self._read_some(unique.tolist()) if self._find_table() is None else None
        if rows is None:
            self._download().read(ids, out)
        else:
            raw = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, self.row_bytes)
            out[:] = raw[inverse.reshape(-1)]

    def map(self) -> Bytes:
        return self._download().map()

    def check(self) -> None:
        if self._table is not None:
            self._table.check()

    def _read_some(self, ids: Sequence[int]) -> list[bytes] | None:
        """Return rows from the cache or the server; None if downloading the whole table is faster."""
        from fsspec.utils import merge_offset_ranges

        spans = [(at, at + self.row_bytes) for at in (self.offset + row * self.row_bytes for row in ids)]
        cached = self.file.read_cached(spans)
        missing = [span for span in spans if span not in cached]
        count = self._fetched + len(missing)
        if missing and (count > self.rows * MAX_FETCHED_SHARE or count * self.row_bytes > MAX_FETCHED_BYTES):
            return None
        received: dict[Span, bytes] = {}
        try:
            if missing:
                starts, stops = map(list, zip(*missing, strict=True))
                _, starts, stops = merge_offset_ranges([""] * len(missing), starts, stops, MAX_GAP, MAX_REQUEST)
                self.file.fetch(list(zip(starts, stops, strict=True)), received)
        finally:  # keep what was received even if one of the requests failed
            rows = {
                (at, at + self.row_bytes): data[at - start : at - start + self.row_bytes]
                for (start, stop), data in received.items()
                for at in range(start, stop, self.row_bytes)
            }
            if rows:
                self.file.keep(rows)
        self._fetched, cached = count, cached | rows
        return [cached[span] for span in spans]

    def _key(self) -> str:
        return self.file.key(self.offset, self.rows, self.row_bytes)

    def _find_table(self) -> FileRows | None:
        """Return the downloaded table, if it is complete and intact."""
        if self._table is None and (key := self._key()):
            path = self.file.cache.folder / key / "table.rows"
            with suppress(OSError):
                if is_intact(path, self.rows * self.row_bytes):
                    self._table = FileRows(path, 0, self.rows, self.row_bytes)
                else:
                    path.unlink()
        return self._table

    def _download(self) -> FileRows:
        """Return the whole table on disk, downloaded if necessary; if it cannot be cached, only for this process."""
        from huggingface_hub.utils import WeakFileLock

        table = self._find_table()
        if table is None:
            key = self._key()
            folder = self.file.cache.make_folder(key or secrets.token_hex(20), self.rows * self.row_bytes)
            if folder is None:
                problem = "but the cache folder is not writable; set HF_HOME to a writable folder"
                raise CheckpointError(f"the table in {self.file} must be downloaded, {problem}")
            if not key:
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
            path = folder / "table.rows"
            with file_errors(path, "cannot be written", CheckpointError), WeakFileLock(path.with_suffix(".lock")):
                if self._find_table() is None:  # another process may have been faster
                    download(self.file, self.offset, self.offset + self.rows * self.row_bytes, path)
            table = self._table = FileRows(path, 0, self.rows, self.row_bytes)
        return table


def download(file: RemoteFile, start: int, stop: int, path: Path) -> None:
    """Write bytes start..stop - 1 of a remote file and their checksum to `path`, created when all have arrived."""
    from huggingface_hub.utils import tqdm

    part = path.with_suffix(".part")
    settings = {"unit": "B", "unit_scale": True, "desc": f"table in {file}", "disable": not sys.stderr.isatty()}
    with part.open("a+b") as stream, tqdm(total=stop - start, **settings) as bar:  # type: ignore[no-untyped-call]
        done = min(stream.tell(), stop - start) // BLOCK * BLOCK  # only complete blocks are known to be on disk
        stream.truncate(done)
        bar.update(done)
        stream.seek(0)
        crc = crc_of(stream, done)
        blocks = [(at, min(at + BLOCK, stop)) for at in range(start + done, stop, BLOCK)]
        for group in range(0, len(blocks), BLOCKS):
            received = file.fetch(blocks[group : group + BLOCKS])
            for block in blocks[group : group + BLOCKS]:
                data = received.pop(block)
                crc = zlib.crc32(data, crc)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
                bar.update(block[1] - block[0])
        if stream.tell() != stop - start:
            raise truncated(file, stop)
        stream.write(crc.to_bytes(CHECKSUM_BYTES, "little"))
    part.replace(path)


def crc_of(stream: BinaryIO, nbytes: int) -> int:
    """Return the CRC-32 of the next bytes of a stream."""
    crc = 0
    for at in range(0, nbytes, BLOCK):
        crc = zlib.crc32(stream.read(min(BLOCK, nbytes - at)), crc)
    return crc


def is_intact(path: Path, nbytes: int) -> bool:
    """Return whether a downloaded table has `nbytes` bytes, followed by their checksum."""
    with path.open("rb") as stream:
        return crc_of(stream, nbytes).to_bytes(CHECKSUM_BYTES, "little") == stream.read()
