"""From rows to ids: the inverse of a lookup, by a hash of each row's bytes. Numpy only.

text -> ids <- [rows]
- only hashes are stored, 16 bytes per row. A row with a matching hash is read and compared, so results are exact
Tested against a plain loop in tests/tables/test_row_index.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from inlayer.shapes import Array, Bytes, Ids


def hash_rows(rows: Array) -> npt.NDArray[np.uint64]:
    """Hash the bytes of every row: equal rows have equal hashes, different rows almost never do."""
    raw = np.ascontiguousarray(rows).view(np.uint8)
    words = raw.view(f"u{math.gcd(raw.shape[1], 8)}")
    # A sum of products with odd factors, modulo 2**64. The factors come from splitmix64: importing numpy.random
    # takes longer than hashing a small table.
    factors = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    factors = (factors ^ (factors >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    factors = (factors ^ (factors >> np.uint64(27))) * np.uint64(0x94D049BB133111EB) | np.uint64(1)
    return np.asarray(words @ factors, np.uint64)


class RowIndex:
    """Finds ids by the bytes of their rows; `read` returns the bytes (n, B) of ids (n,), hashed `block` at a time."""

    def __init__(self, count: int, read: Callable[[Ids], Bytes], block: int) -> None:
        starts = range(0, count, block)
        hashes = np.concatenate([hash_rows(read(np.arange(at, min(at + block, count)))) for at in starts])
        self._order = np.argsort(hashes, kind="stable")
        self._hashes, self._read = hashes[self._order], read

    def find(self, rows: Bytes) -> Ids:
        """Return the first id of each row (n, B); -1 for a row that is not in the table."""
        hashes, ids = hash_rows(rows), np.full(len(rows), -1, np.int64)
        position = np.searchsorted(self._hashes, hashes)
        remaining = np.arange(len(rows))
        while True:
            remaining = remaining[position[remaining] < len(self._hashes)]
            remaining = remaining[self._hashes[position[remaining]] == hashes[remaining]]
            if not len(remaining):
                return ids
            candidates = self._order[position[remaining]]
            equal = (self._read(candidates) == rows[remaining]).all(1)
            ids[remaining[equal]] = candidates[equal]
            remaining = remaining[~equal]  # different rows with the same hash
            position[remaining] += 1
