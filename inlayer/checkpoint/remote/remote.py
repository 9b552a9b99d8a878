"""Rows of a table that lies in a file on the hub.

[checkpoint] -> Embeddings, Head, tokenizer
- few rows: only they are fetched, neighbors in one request, several requests at a time; each is kept
- many rows, or the whole table: its range of the file is downloaded once, in blocks, and read from disk from then on.
  About a tenth of a table counts as many: row by row it would take as long as the whole of it in one go
- a download that broke off goes on at the last block that is known to be on disk; the file gets its name when its last
  byte is there, so a partial one is never taken for a whole one
- not here: what the bytes of a row mean (tables/stored.py), requests and their faults (checkpoint/remote/transfer.py)
Checked against the same rows in a local file in tests/checkpoint/remote/test_hub.py.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.remote.ranges import RemoteFile, Span
from inlayer.errors import CheckpointError, InlayerError
from inlayer.formats.row_file import FileRows
from inlayer.paths import shown

__all__ = ["RemoteRows"]

Bytes = npt.NDArray[np.uint8]

MANY_ROWS = 1 / 8  # of the table, or
MANY_BYTES = 128 << 20  # in rows: past either, the whole table is downloaded
SMALL_GAP = 32 << 10  # bytes between two rows that cost less than a second request
LONGEST_RUN = 8 << 20  # bytes in one request for rows: longer ones are shared among the threads
THREADS = 8
BLOCK = 16 << 20  # bytes of a download that are on disk before the next are written
BLOCKS = 4  # that are on their way at a time


class RemoteRows:
    """`rows` rows of `row_bytes` bytes each, the first one at `offset` of a file on the hub."""

    def __init__(self, file: RemoteFile, offset: int, rows: int, row_bytes: int) -> None:
        self.file, self.offset, self.rows, self.row_bytes = file, offset, rows, row_bytes
        self._fetched = 0  # rows, one by one: a walk through the whole table soon counts as many
        self._whole: FileRows | None = None

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of ids within 0..rows - 1."""
        if self._downloaded() is None:
            wanted, places = np.unique(ids, return_inverse=True)
            found = self._collect(wanted.tolist())
            if found is not None:
                raw = np.frombuffer(b"".join(found), np.uint8).reshape(-1, self.row_bytes)
                out[:] = raw[places.reshape(-1)]
                return
        self._download().read(ids, out)

    def map(self) -> Bytes:
        """All rows (rows, row_bytes), mapped from the downloaded table."""
        return self._download().map()

    def check(self) -> None:
        """An error where the downloaded table was changed."""
        if self._whole is not None:
            self._whole.check()

    def _collect(self, wanted: Sequence[int]) -> list[bytes] | None:
        """These rows, kept or fetched; None where they are so many that the whole table should be."""
        spans = [self._span(row) for row in wanted]
        found = self.file.cache.get(self.file.place.file, spans)
        missing = [row for row, span in zip(wanted, spans, strict=True) if span not in found]
        if missing:
            count = self._fetched + len(missing)
            if count > self.rows * MANY_ROWS or count * self.row_bytes > MANY_BYTES:
                return None
            found |= self._fetch(missing)
            self._fetched = count
        return [found[span] for span in spans]

    def _fetch(self, missing: Sequence[int]) -> dict[Span, bytes]:
        """Rows that are not kept yet. What came is kept even if one of the requests fails."""
        found: dict[Span, bytes] = {}
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="inlayer-rows")
        try:
            for done in as_completed([pool.submit(self._fetch_run, *run) for run in self._runs(missing)]):
                found |= done.result()
        finally:
            pool.shutdown(cancel_futures=True)
            self.file.cache.put(self.file.place.file, found)
        return found

    def _runs(self, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
        """First and last row of each request, for rows in order."""
        first = last = rows[0]
        for row in rows[1:]:
            if (row - last - 1) * self.row_bytes > SMALL_GAP or (row - first) * self.row_bytes >= LONGEST_RUN:
                yield first, last
                first = row
            last = row
        yield first, last

    def _fetch_run(self, first: int, last: int) -> dict[Span, bytes]:
        start = self._span(first)[0]
        data = self.file.fetch(start, self._span(last)[1])
        spans = [self._span(row) for row in range(first, last + 1)]
        return {span: data[span[0] - start : span[1] - start] for span in spans}

    def _span(self, row: int) -> Span:
        start = self.offset + row * self.row_bytes
        return start, start + self.row_bytes

    @property
    def _nbytes(self) -> int:
        return self.rows * self.row_bytes

    def _path(self) -> Path | None:
        """Where the whole table is kept once it is downloaded."""
        if self.file.cache.folder is None:
            return None
        name = hashlib.sha256(self.file.place.file.encode()).hexdigest()[:16]
        return self.file.cache.folder / f"{name}-{self.offset}-{self._nbytes}.rows"

    def _downloaded(self) -> FileRows | None:
        """The whole table on disk, if it is there."""
        if self._whole is None:
            path = self._path()
            if path is not None and path.is_file() and path.stat().st_size == self._nbytes:
                self._whole = FileRows(path, 0, self.rows, self.row_bytes)
        return self._whole

    def _download(self) -> FileRows:
        """The whole table on disk, downloaded unless it is there."""
        from huggingface_hub.utils import WeakFileLock

        path = self._path()
        if path is None:
            raise CheckpointError(
                f"the table in {self.file.place} has to be downloaded, and the cache folder cannot be written; set "
                "HF_HOME to one that can"
            )
        if self._downloaded() is None:
            try:
                with WeakFileLock(path.with_suffix(".lock")):
                    if self._downloaded() is None:  # another process may have been first
                        download(self.file, self.offset, self._nbytes, path)
            except InlayerError:
                raise  # some of them are OSErrors too
            except OSError as error:
                raise CheckpointError(f"{shown(path)} cannot be written: {error.strerror}") from error
        whole = self._downloaded()
        if whole is None:
            raise CheckpointError(f"{shown(path)} vanished as soon as it was downloaded; is something cleaning up?")
        return whole


def download(file: RemoteFile, offset: int, nbytes: int, path: Path) -> None:
    """Bytes offset..offset + nbytes - 1 of a file on the hub, as a file that is either whole or not there."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    part = path.with_suffix(".part")
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    with part.open("ab") as stream, bar:
        done = min(stream.tell(), nbytes) // BLOCK * BLOCK  # only whole blocks were surely on disk when it broke off
        stream.truncate(done)
        free = shutil.disk_usage(path.parent).free
        if free < nbytes - done:
            raise CheckpointError(
                f"the table in {file.place} has {nbytes - done:,} bytes to download, and {shown(path.parent)} has room "
                f"for {free:,}"
            )
        task = bar.add_task(f"table of {file.place}", total=nbytes, completed=done)
        for block in _blocks(file, offset + done, offset + nbytes):
            stream.write(block)
            stream.flush()
            os.fsync(stream.fileno())
            bar.advance(task, len(block))
        if stream.tell() != nbytes:
            raise CheckpointError(f"{file.place} ends inside its table; was it cut short when it was uploaded?")
    part.replace(path)


def _blocks(file: RemoteFile, start: int, stop: int) -> Iterator[bytes]:
    """A range in blocks, in order, a few of them fetched at the same time."""
    with ThreadPoolExecutor(BLOCKS, thread_name_prefix="inlayer-table") as pool:
        for group in range(start, stop, BLOCK * BLOCKS):
            starts = range(group, min(group + BLOCK * BLOCKS, stop), BLOCK)
            yield from pool.map(lambda first: file.fetch(first, min(first + BLOCK, stop)), starts)
