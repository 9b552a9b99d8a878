"""ByteFile: a file that is read by byte range. RowSource: rows of equal length in bytes, read by index.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- headers and tables read their bytes from a ByteFile: a LocalFile with FileRows, or a remote one
  (checkpoint/remote/source.py)
- a row is read with `preadv` straight into the result (Windows lacks it, so one thread reads at a time there). With a
  memory mapping, the pages around each row would become resident too: reading 2,048 rows of a 2.35 GB table made
  1.9 GB resident (docs/decisions.md)
- if a file is truncated or rewritten while it is open, the next read raises an error instead of killing the process. A
  file that is replaced by renaming stays readable because the old file is still open
Tested in tests/formats/test_row_reader.py.
"""

from __future__ import annotations

import mmap
import os
import weakref
from abc import ABC, abstractmethod
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from inlayer.errors import CheckpointError, MissingFileError
from inlayer.files import check_is_file, file_errors, format_path
from inlayer.formats.tensor_info import TensorInfo
from inlayer.shapes import Bytes, Ids

MAX_READ = 1 << 30  # bytes; the system reads at most 2 GB per call
SEEK_LOCK = Lock()


def read_into(file: int, out: memoryview, offset: int) -> int:
    """Fill a buffer from a position in a file and return the number of bytes."""
    if hasattr(os, "preadv"):
        return os.preadv(file, [out], offset)
    with SEEK_LOCK:  # threads share the file and therefore its position
        os.lseek(file, offset, os.SEEK_SET)
        data = os.read(file, len(out))
    out[: len(data)] = data
    return len(data)


class RowSource(ABC):
    """Where the bytes of rows come from: `rows` rows of `row_bytes` bytes each."""

    rows: int
    row_bytes: int

    @abstractmethod
    def read(self, ids: Ids, out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of `ids`, all within 0..rows - 1."""

    def take(self, ids: Ids) -> Bytes:
        """Return the rows (n, row_bytes) of checked ids."""
        self.read(ids, out := np.empty((len(ids), self.row_bytes), np.uint8))
        return out

    def memory_map(self) -> Bytes:
        """Return all rows (rows, row_bytes): memory-mapped if possible, otherwise read."""
        return self.take(np.arange(self.rows))

    def check_unmodified(self) -> None:  # noqa: B027  # nothing to check by default
        """Raise an error if mapped rows are no longer valid. Rows that were read into memory always are."""


class FileRows(RowSource):
    """`rows` rows of `row_bytes` bytes each, starting at `offset` of a file."""

    def __init__(self, path: Path, offset: int, rows: int, row_bytes: int) -> None:
        self.path, self.offset, self.rows, self.row_bytes = path, offset, rows, row_bytes
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
        except OSError as error:
            raise MissingFileError(f"{format_path(path)} cannot be opened: {error.strerror}") from error
        weakref.finalize(self, os.close, self._file)
        self._seen = self._state()
        if self._seen[0] < offset + rows * row_bytes:
            raise CheckpointError(
                f"{format_path(path)} is {self._seen[0]:,} bytes; its rows end at {offset + rows * row_bytes:,}: was "
                "the download cut short?"
            )

    def read(self, ids: Ids, out: Bytes) -> None:
        self.check_unmodified()
        if len(ids) == 0:
            return
        breaks = np.flatnonzero(ids[1:] - ids[:-1] != 1) + 1  # adjacent rows are read in one call
        first, flat = ids.tolist(), out.reshape(-1).data
        for start, end in pairwise([0, *breaks.tolist(), len(ids)]):
            self._fill(flat[start * self.row_bytes : end * self.row_bytes], self.offset + first[start] * self.row_bytes)
        self.check_unmodified()  # the file may have been changed during the read

    def memory_map(self) -> Bytes:
        """Return all rows (rows, row_bytes), mapped privately: writing into them never changes the file."""
        self.check_unmodified()
        end = self.offset + self.rows * self.row_bytes
        try:
            whole = np.frombuffer(mmap.mmap(self._file, end, access=mmap.ACCESS_COPY), np.uint8)
        except OSError:  # this file system has no mappings, or a limit was reached. Reading reports a lack of memory
            return super().memory_map()
        return whole[self.offset : end].reshape(self.rows, self.row_bytes)

    def check_unmodified(self) -> None:
        """Raise an error if the file has changed since it was opened."""
        if self._state() != self._seen:
            raise CheckpointError(f"{format_path(self.path)} was modified while it was open; open it again")

    def _state(self) -> tuple[int, int]:
        stat = os.fstat(self._file)
        return stat.st_size, stat.st_mtime_ns

    def _fill(self, out: memoryview, offset: int) -> None:
        while len(out):
            try:
                count = read_into(self._file, out[:MAX_READ], offset)
            except OSError as error:
                raise CheckpointError(f"{format_path(self.path)} cannot be read: {error.strerror}") from error
            if count == 0:
                raise CheckpointError(f"{format_path(self.path)} was truncated while it was open, at byte {offset:,}")
            out, offset = out[count:], offset + count

    def __deepcopy__(self, memo: dict[int, Any]) -> FileRows:
        return self  # a source is immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return FileRows, (self.path, self.offset, self.rows, self.row_bytes)


class ByteFile(ABC):
    """A file that is read by byte range. `str(file)` names it in messages."""

    min_read = 1  # minimum number of bytes worth reading at once

    @property
    @abstractmethod
    def size(self) -> int:
        """The file's size in bytes."""

    @abstractmethod
    def read(self, start: int, stop: int) -> bytes:
        """Read bytes start..stop - 1; fewer are returned only if the file ends earlier."""

    @abstractmethod
    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        """Read exactly `nbytes` bytes, starting at `offset`, into a new array."""

    @abstractmethod
    def rows(self, offset: int, rows: int, row_bytes: int) -> RowSource:
        """Return `rows` rows of `row_bytes` bytes each, starting at `offset`; does not read any."""

    def read_all(self, limit: int) -> bytes:
        """Return the whole file, unless it is larger than the limit."""
        if self.size > limit:
            raise CheckpointError(f"{self} is {self.size:,} bytes; at most {limit:,} are read")
        return self.read(0, self.size)

    def rows_of(self, tensor: TensorInfo) -> RowSource:
        """Return the rows along the first axis of a tensor."""
        rows = tensor.shape[0]
        return self.rows(tensor.offset, rows, tensor.nbytes // rows)


class LocalFile(ByteFile):
    """A regular file on this machine. It is opened for each read."""

    def __init__(self, path: Path) -> None:
        self.path = check_is_file(path)

    def __str__(self) -> str:
        return format_path(self.path)

    @property
    def size(self) -> int:
        with file_errors(self.path, kind=CheckpointError):
            return self.path.stat().st_size

    def read(self, start: int, stop: int) -> bytes:
        with file_errors(self.path, kind=CheckpointError), self.path.open("rb") as stream:
            stream.seek(start)
            return stream.read(max(0, stop - start))

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        return self.rows(offset, 1, nbytes).take(np.zeros(1, np.int64)).reshape(-1)

    def rows(self, offset: int, rows: int, row_bytes: int) -> FileRows:
        return FileRows(self.path, offset, rows, row_bytes)
