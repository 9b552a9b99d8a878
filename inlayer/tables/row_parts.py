"""Rows from several tensors: one after the other (shards), or side by side (values with their scales).

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- qwen4_exp stores its n-gram table in 512 shards, LongCat-Flash in one tensor per head
- a row of DeepSeek's Engram is 256 FP8 values and 8 scales of another tensor, each for 32 of them
Tested in tests/tables/test_row_parts.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from inlayer.tables.stored import Bytes, RowSource


class JoinedRows:
    """The rows of several sources with rows of the same length, one source after the other."""

    def __init__(self, parts: Sequence[RowSource]) -> None:
        self.parts, self.row_bytes = tuple(parts), parts[0].row_bytes
        self._ends = np.cumsum([part.rows for part in parts])
        self.rows = int(self._ends[-1])

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of checked ids."""
        found = np.searchsorted(self._ends, ids, side="right")
        for index in np.unique(found):
            chosen = np.flatnonzero(found == index)
            part, first = self.parts[index], self._ends[index] - self.parts[index].rows
            raw = np.empty((len(chosen), self.row_bytes), np.uint8)
            part.read(ids[chosen] - first, raw)
            out[chosen] = raw

    def map(self) -> Bytes:
        """All rows (rows, row_bytes), copied."""
        return np.concatenate([part.map() for part in self.parts])

    def check(self) -> None:
        """Raise an error if the bytes are no longer valid."""
        for part in self.parts:
            part.check()


class PairedRows:
    """Each row of one source, followed by the same row of another."""

    def __init__(self, left: RowSource, right: RowSource) -> None:
        self.left, self.right, self.rows = left, right, left.rows
        self.row_bytes = left.row_bytes + right.row_bytes

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of checked ids."""
        start = 0
        for part in (self.left, self.right):
            raw = np.empty((len(ids), part.row_bytes), np.uint8)
            part.read(ids, raw)
            out[:, start : start + part.row_bytes] = raw
            start += part.row_bytes

    def map(self) -> Bytes:
        """All rows (rows, row_bytes), copied."""
        return np.concatenate([self.left.map(), self.right.map()], axis=1)

    def check(self) -> None:
        """Raise an error if the bytes are no longer valid."""
        self.left.check()
        self.right.check()


class RepeatedRows:
    """Each row of a source `times` times, `rows` in all: scales that a block of rows shares."""

    def __init__(self, source: RowSource, times: int, rows: int) -> None:
        self.source, self.times, self.rows, self.row_bytes = source, times, rows, source.row_bytes

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of checked ids."""
        self.source.read(ids // self.times, out)

    def map(self) -> Bytes:
        """All rows (rows, row_bytes), copied."""
        return np.repeat(self.source.map(), self.times, axis=0)[: self.rows]

    def check(self) -> None:
        """Raise an error if the bytes are no longer valid."""
        self.source.check()
