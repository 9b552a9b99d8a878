"""ByteFile: a file that is read by byte range, wherever it is. LocalFile: one on this machine.

[file] -> headers, rows -> tables, checkpoint
- the formats read headers from a ByteFile, and tables read rows; neither knows where the bytes are
- see also: remote files (checkpoint/remote/source.py)
Tested with every format in tests/formats/ and tests/checkpoint/.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path

import numpy as np

from inlayer.errors import CheckpointError
from inlayer.files import check_is_file, format_path
from inlayer.formats.row_reader import Bytes, FileRows, RowSource
from inlayer.formats.tensor_info import TensorInfo


class ByteFile(ABC):
    """A file that is read by byte range. `str(file)` names it in messages."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Its size in bytes."""

    @abstractmethod
    def read(self, start: int, stop: int) -> bytes:
        """Read bytes start..stop - 1; fewer are returned only if the file ends earlier."""

    @abstractmethod
    def take(self, offset: int, nbytes: int) -> Bytes:
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
        return self.path.stat().st_size

    def read(self, start: int, stop: int) -> bytes:
        nbytes = min(stop, self.size) - start
        return self.take(start, nbytes).tobytes() if nbytes > 0 else b""

    def take(self, offset: int, nbytes: int) -> Bytes:
        return self.rows(offset, 1, nbytes).take(np.zeros(1, np.int64)).reshape(-1)

    def rows(self, offset: int, rows: int, row_bytes: int) -> FileRows:
        return FileRows(self.path, offset, rows, row_bytes)
