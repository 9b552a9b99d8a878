"""RemoteRows: rows of a remote file, fetched individually, or read from a download of the whole table.

source -> [remote rows] -> table
- a few rows are fetched individually. For many, the whole table is downloaded once (a download can resume), then
  read from disk
- a downloaded table ends with a checksum and is renamed into place only when complete, so a partial download is never
  used
Tested in tests/checkpoint/remote/test_remote_rows.py.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import sys
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from inlayer.checkpoint.remote.transfer import CHECKSUM_BYTES, Span, truncated_error
from inlayer.errors import CheckpointError
from inlayer.files import file_errors
from inlayer.formats.row_reader import FileRows, RowSource
from inlayer.shapes import Bytes, Ids

if TYPE_CHECKING:
    from inlayer.checkpoint.remote.source import RemoteFile

# Beyond either limit, downloading the whole table is faster than fetching rows.
MAX_FETCHED_SHARE = 1 / 8  # share of the table
MAX_FETCHED_BYTES = 128 << 20
MAX_GAP = 32 << 10  # reading up to this many bytes between two rows costs less than a second request
MAX_REQUEST = 8 << 20  # bytes of neighboring rows in one request
SYNC_BYTES = 16 << 20  # bytes of a download that are synced to disk at a time
BLOCKS = 4  # blocks requested at a time


class RemoteRows(RowSource):
    """`rows` rows of `row_bytes` bytes each, starting at `offset` of a remote file."""

    def __init__(self, file: RemoteFile, offset: int, rows: int, row_bytes: int) -> None:
        self.file, self.offset, self.rows, self.row_bytes = file, offset, rows, row_bytes
        self._fetched = 0  # rows fetched so far, so a loop over the whole table soon switches to a download
        self._table: FileRows | None = None

    def read(self, ids: Ids, out: Bytes) -> None:
        unique, inverse = np.unique(ids, return_inverse=True)
        rows = self._read_some(unique.tolist()) if self._find_table() is None else None
        if rows is None:
            self._download().read(ids, out)
        else:
            raw = np.frombuffer(b"".join(rows), np.uint8).reshape(-1, self.row_bytes)
            out[:] = raw[inverse.reshape(-1)]

    def memory_map(self) -> Bytes:
        return self._download().memory_map()

    def check_unmodified(self) -> None:
        if self._table is not None:
            self._table.check_unmodified()

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
                self.file.cache_ranges(rows)
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
        # only complete blocks are known to be on disk
        done = min(stream.tell(), stop - start) // SYNC_BYTES * SYNC_BYTES
        stream.truncate(done)
        bar.update(done)
        stream.seek(0)
        crc = crc_of(stream, done)
        blocks = [(at, min(at + SYNC_BYTES, stop)) for at in range(start + done, stop, SYNC_BYTES)]
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
            raise truncated_error(file, stop)
        stream.write(crc.to_bytes(CHECKSUM_BYTES, "little"))
    part.replace(path)


def crc_of(stream: BinaryIO, nbytes: int) -> int:
    """Return the CRC-32 of the next bytes of a stream."""
    crc = 0
    for at in range(0, nbytes, SYNC_BYTES):
        crc = zlib.crc32(stream.read(min(SYNC_BYTES, nbytes - at)), crc)
    return crc


def is_intact(path: Path, nbytes: int) -> bool:
    """Return whether a downloaded table has `nbytes` bytes, followed by their checksum."""
    with path.open("rb") as stream:
        return crc_of(stream, nbytes).to_bytes(CHECKSUM_BYTES, "little") == stream.read()
