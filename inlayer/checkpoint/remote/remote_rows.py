"""Rows of a table in a remote file.

[checkpoint] -> Embeddings, Head, tokenizer
- a few rows: only those are fetched, neighbors in one request, several requests at a time; each row is cached
- many rows, or the whole table: its range of the file is downloaded once, then read from disk
- an interrupted download resumes at the last complete block. The file gets its final name when it is complete, so a
  partial one is never mistaken for a complete one
- elsewhere: what the bytes of a row mean (tables/stored.py), requests (transfer.py)
Tested against the same rows in a local file in tests/checkpoint/remote/test_remote_rows.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.remote.cache import digest
from inlayer.checkpoint.remote.source import RemoteFile
from inlayer.checkpoint.remote.transfer import Span
from inlayer.errors import CheckpointError, InlayerError
from inlayer.files import shown
from inlayer.formats.row_file import FileRows

__all__ = ["RemoteRows"]

Bytes = npt.NDArray[np.uint8]

MANY_ROWS = 1 / 8  # of the table, or
MANY_BYTES = 128 << 20  # in rows: beyond either, downloading the whole table is faster
MAX_GAP = 32 << 10  # bytes between two rows that cost less than a second request
MAX_REQUEST = 8 << 20  # bytes of neighboring rows in one request
BLOCK = 16 << 20  # bytes of a download that reach the disk at a time
BLOCKS = 4  # requested at a time


class RemoteRows:
    """`rows` rows of `row_bytes` bytes each, starting at `offset` of a remote file."""

    def __init__(self, file: RemoteFile, offset: int, rows: int, row_bytes: int) -> None:
        self.file, self.offset, self.rows, self.row_bytes = file, offset, rows, row_bytes
        self._fetched = 0  # a loop over the whole table soon counts as many rows
        self._table: FileRows | None = None

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of ids within 0..rows - 1."""
        unique, inverse = np.unique(ids, return_inverse=True)
        found = self._read_some(unique.tolist()) if self._find_table() is None else None
        if found is None:
            self._download().read(ids, out)
        else:
            raw = np.frombuffer(b"".join(found), np.uint8).reshape(-1, self.row_bytes)
            out[:] = raw[inverse.reshape(-1)]

    def map(self) -> Bytes:
        """All rows (rows, row_bytes), mapped from the downloaded table."""
        return self._download().map()

    def check(self) -> None:
        """Raise an error if the downloaded table was changed."""
        if self._table is not None:
            self._table.check()

    def _span(self, first: int, last: int | None = None) -> Span:
        stop = (first if last is None else last) + 1
        return self.offset + first * self.row_bytes, self.offset + stop * self.row_bytes

    def _read_some(self, ids: Sequence[int]) -> list[bytes] | None:
        """Rows from the cache or the server; None if downloading the whole table is faster."""
        found = self.file.read_cached(map(self._span, ids))
        missing = [row for row in ids if self._span(row) not in found]
        count = self._fetched + len(missing)
        if missing and (count > self.rows * MANY_ROWS or count * self.row_bytes > MANY_BYTES):
            return None
        received: dict[Span, bytes] = {}
        try:
            if missing:
                self.file.fetch([self._span(*run) for run in self._runs(missing)], received)
        finally:  # keep what was received even if one of the requests failed
            rows = {
                (at, at + self.row_bytes): data[at - start : at - start + self.row_bytes]
                for (start, stop), data in received.items()
                for at in range(start, stop, self.row_bytes)
            }
            if rows:
                self.file.keep(rows)
        self._fetched, found = count, found | rows
        return [found[self._span(row)] for row in ids]

    def _runs(self, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
        """First and last row of each request, for sorted rows."""
        first = last = rows[0]
        for row in rows[1:]:
            if (row - last - 1) * self.row_bytes > MAX_GAP or (row - first) * self.row_bytes >= MAX_REQUEST:
                yield first, last
                first = row
            last = row
        yield first, last

    def _key(self) -> str:
        return digest(self.file.url, self.file.size, self.file.version, self.offset, self.rows, self.row_bytes)

    def _find_table(self) -> FileRows | None:
        """The downloaded table, if there is one of the right size."""
        if self._table is None and self.file.cache.folder is not None:
            path = self.file.cache.folder / self._key() / "table.rows"
            if path.is_file() and path.stat().st_size == self.rows * self.row_bytes:
                self._table = FileRows(path, 0, self.rows, self.row_bytes)
        return self._table

    def _download(self) -> FileRows:
        """The whole table on disk, downloaded if necessary."""
        from huggingface_hub.utils import WeakFileLock

        table = self._find_table()
        if table is None:
            folder = self.file.cache.make_folder(self._key())
            if folder is None:
                raise CheckpointError(
                    f"the table in {self.file} must be downloaded, but the cache folder cannot be written; set HF_HOME "
                    "to a folder that can"
                )
            path = folder / "table.rows"
            try:
                with WeakFileLock(path.with_suffix(".lock")):
                    if self._find_table() is None:  # another process may have been faster
                        download(self.file, *self._span(0, self.rows - 1), path)
            except InlayerError:
                raise  # some of them are OSErrors too
            except OSError as error:
                raise CheckpointError(f"{shown(path)} cannot be written: {error.strerror}") from error
            table = FileRows(path, 0, self.rows, self.row_bytes)
        return table


def download(file: RemoteFile, start: int, stop: int, path: Path) -> None:
    """Write bytes start..stop - 1 of a remote file to `path`, which never holds less than all of them."""
    from huggingface_hub.utils import tqdm

    part = path.with_suffix(".part")
    settings = {"unit": "B", "unit_scale": True, "desc": f"table in {file}", "disable": not sys.stderr.isatty()}
    with part.open("ab") as stream, tqdm(total=stop - start, **settings) as bar:  # type: ignore[no-untyped-call]
        done = min(stream.tell(), stop - start) // BLOCK * BLOCK  # only complete blocks are known to be on disk
        stream.truncate(done)
        bar.update(done)
        blocks = [(at, min(at + BLOCK, stop)) for at in range(start + done, stop, BLOCK)]
        for group in range(0, len(blocks), BLOCKS):
            received = file.fetch(blocks[group : group + BLOCKS])
            for block in blocks[group : group + BLOCKS]:
                stream.write(received.pop(block))
                stream.flush()
                os.fsync(stream.fileno())
                bar.update(block[1] - block[0])
        if stream.tell() != stop - start:
            raise CheckpointError(f"{file} ends inside its table; was it truncated when it was uploaded?")
    part.replace(path)
