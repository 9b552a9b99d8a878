"""Pools the rows of many texts: mean, max, first, or last. Uses numpy, or torch or SciPy for large batches.

text -> ids -> rows -> [pooling] -> vectors
- a text of up to SEGMENT tokens is summed in float32, in the order of its tokens; a longer text is a float64 sum of
  segments of that length. torch, SciPy, and numpy then give the same bits for any batch size and number of threads. The
  error is at most 1e-6 times the largest absolute value of the table; sums in float64 would make `encode` 60% slower
- token weights are multiplied into the rows before they are summed, for the same reason
- a table of up to MAX_TABLE_BYTES is kept in float32; with a larger one, each batch reads only the rows that it needs
- see also: pooling of hidden states, with masks and gradients (inlayer/pooling.py)
Tested against a plain float64 computation in tests/encoding/test_encode.py.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from threading import Lock

import numpy as np

from inlayer.geometry.nearest import to_float32
from inlayer.ragged import Ragged, slice_texts
from inlayer.shapes import Array, Ids, Vectors
from inlayer.tables.stored_table import StoredTable
from inlayer.threads import core_count, map_in_threads

Sums = Callable[[Vectors, Ids, Ids], Vectors]  # rows (V, D), ids (N,), offsets (B + 1,) -> (B, D)

POOLS = ("mean", "first", "last", "max", "none")
SEGMENT = 32  # tokens
MAX_TABLE_BYTES = 2**29  # the largest table that is kept in float32
MAX_NUMPY_IDS = 4096  # up to this many ids, numpy is faster than dispatching to torch or SciPy
BLOCK_VALUES = 2**22  # values gathered, or computed as sums of segments, at a time: 16 MB
BLOCK_TEXTS = 2048  # texts summed at a time, so the sums are still in the cache when they are divided
MIN_VALUES_PER_THREAD = 2**20

torch_process = os.getpid()  # forks do not copy threads: if torch was used before a fork, the child would wait for them


class RowPooler:
    """The rows of a table, ready to be pooled. `scale` (V,) multiplies each token's row."""

    def __init__(self, table: StoredTable, scale: Array | None = None) -> None:
        self.table, self.scale, self.width = table, scale, table.embedding_dim
        self._fits = table.num_embeddings * self.width * 4 <= MAX_TABLE_BYTES
        self._lock, self._uses = Lock(), 0

    @cached_property
    def _whole(self) -> Vectors:
        rows = to_float32(self.table.weight)
        return rows if self.scale is None else rows * self.scale.astype(np.float32)[:, None]

    def rows(self, ids: Ids) -> Vectors:
        """Return the rows (n, D) of checked ids in float32, scaled."""
        if "_whole" in self.__dict__:
            self.table.source.check_unmodified()
            return self._whole.take(ids, 0)
        rows = to_float32(self.table.rows(ids))
        return rows if self.scale is None else rows * self.scale[ids, None].astype(np.float32)

    def fill(self, ids: Ids, out: Vectors) -> None:
        """Write the rows of checked ids to `out` (n, D), on all cores.

        Most of the time is spent on page faults in newly allocated memory.
        """
        rows, index = self._of_batch(ids)
        step = max(MIN_VALUES_PER_THREAD // self.width, -(-ids.size // core_count()), 1)
        parts = [slice(start, start + step) for start in range(0, ids.size, step)]
        # "clip" writes to `out` directly; the ids were checked before
        map_in_threads(lambda part: rows.take(index[part], 0, out=out[part], mode="clip"), parts)

    def pool(self, ids: Ragged, mode: str, out: Vectors | None = None) -> Vectors:
        """Return one vector per text (B, D) of checked ids, in `out` if given; a text without tokens gives zeros."""
        out = np.empty((len(ids), self.width), np.float32) if out is None else out
        if mode == "mean":
            for start in range(0, len(ids), BLOCK_TEXTS):
                stop = min(start + BLOCK_TEXTS, len(ids))
                self._mean(slice_texts(ids, start, stop), out[start:stop])
            return out
        out[:] = 0
        filled = np.flatnonzero(ids.counts)
        if mode == "max":
            self._max(ids, filled, out)
        else:
            indices = ids.offsets[:-1][filled] if mode == "first" else ids.offsets[1:][filled] - 1
            out[filled] = self.rows(ids.flat[indices])
        return out

    def _mean(self, ids: Ragged, out: Vectors) -> None:
        step, texts = SEGMENT * max(1, BLOCK_VALUES // self.width), len(ids)
        if ids.flat.size <= step:
            self._short_means(ids, out)
        elif texts > 1:
            for half in (slice(0, texts // 2), slice(texts // 2, texts)):
                self._mean(slice_texts(ids, half.start, half.stop), out[half])
        else:
            total = np.zeros(self.width)
            for start in range(0, ids.flat.size, step):
                block = ids.flat[start : start + step]
                offsets = np.append(np.arange(0, block.size, SEGMENT), block.size)
                segments = self._sums(block, offsets).astype(np.float64)
                segments[0] += total  # so all segments are added in order, as in a shorter text
                total = segments.sum(0)
            out[0] = total / ids.flat.size

    def _short_means(self, ids: Ragged, out: Vectors) -> None:
        """Write the means of texts whose segments fit into memory."""
        counts = ids.counts
        pieces = np.maximum(-(-counts // SEGMENT), 1)  # segments of each text
        first = np.cumsum(pieces) - pieces
        starts = np.repeat(ids.offsets[:-1] - SEGMENT * first, pieces) + SEGMENT * np.arange(pieces.sum())
        found = self._sums(ids.flat, np.append(starts, ids.flat.size))
        divisors = np.maximum(counts, 1)[:, None]
        if len(found) > len(out):
            found.take(first, 0, out=out, mode="clip")  # "clip" writes to `out` directly
        np.divide(found if len(found) == len(out) else out, divisors.astype(np.float32), out=out)
        for number in np.unique(pieces[pieces > 1]).tolist():
            texts = np.flatnonzero(pieces == number)
            segments = found[first[texts, None] + np.arange(number)]
            out[texts] = segments.sum(1, dtype=np.float64) / divisors[texts]

    def _sums(self, ids: Ids, offsets: Ids) -> Vectors:
        rows, index = self._of_batch(ids)
        return (sum_with_numpy if ids.size <= MAX_NUMPY_IDS else choose_sums())(rows, index, offsets)

    def _of_batch(self, flat: Ids) -> tuple[Vectors, Ids]:
        """Return rows that include all rows that a batch needs, and the batch's indices into them."""
        if self._fits:
            with self._lock:
                self._uses += flat.size
                if "_whole" in self.__dict__ or self._uses * 4 > self.table.num_embeddings:
                    whole = self._whole
                    self.table.source.check_unmodified()
                    return whole, flat
        used, index = np.unique(flat, return_inverse=True)
        return self.rows(used), index

    def _max(self, ids: Ragged, filled: Ids, out: Vectors) -> None:
        rows, index = self._of_batch(ids.flat)
        starts, ends = ids.offsets[:-1].tolist(), ids.offsets[1:].tolist()
        step = max(1, BLOCK_VALUES // self.width)
        for text in filled.tolist():
            out[text] = -np.inf
            for start in range(starts[text], ends[text], step):
                block = rows.take(index[start : min(start + step, ends[text])], 0)
                np.maximum(out[text], block.max(0), out=out[text])


def choose_sums() -> Sums:
    """Choose the fastest way to sum rows: torch if loaded, else SciPy, else torch if installed, else numpy."""
    has_scipy = "scipy" in sys.modules or importlib.util.find_spec("scipy") is not None
    has_torch = "torch" in sys.modules or (not has_scipy and importlib.util.find_spec("torch") is not None)
    if has_torch and os.getpid() == torch_process:
        return sum_with_torch
    return sum_with_scipy if has_scipy else sum_with_numpy


def sum_with_torch(rows: Vectors, ids: Ids, offsets: Ids) -> Vectors:
    """Sum rows with `embedding_bag`, on all cores."""
    import warnings

    import torch

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the mapped table may be read-only; nothing is written
        sums: Vectors = torch.nn.functional.embedding_bag(
            torch.from_numpy(ids), torch.from_numpy(rows), torch.from_numpy(offsets), mode="sum",
            include_last_offset=True,
        ).numpy()  # fmt: skip
    return sums


def sum_with_scipy(rows: Vectors, ids: Ids, offsets: Ids) -> Vectors:
    """Sum rows by multiplying them by a sparse matrix of ones, on all cores."""
    from scipy.sparse import csr_array

    ones = csr_array((np.ones(ids.size, np.float32), ids, offsets), shape=(offsets.size - 1, len(rows)))
    cuts = np.linspace(0, offsets.size - 1, core_count() + 1).astype(int).tolist()
    return np.concatenate(map_in_threads(lambda cut: ones[cut[0] : cut[1]] @ rows, [*pairwise(cuts)]))


def sum_with_numpy(rows: Vectors, ids: Ids, offsets: Ids) -> Vectors:
    bounds, sums = offsets.tolist(), np.empty((offsets.size - 1, rows.shape[1]), np.float32)
    for text in range(len(bounds) - 1):
        np.add.reduce(rows.take(ids[bounds[text] : bounds[text + 1]], 0), 0, out=sums[text])
    return sums
