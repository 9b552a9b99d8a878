"""Exact nearest rows of a table by cosine similarity: every row is compared with every query. Numpy only.

table, queries -> [ids, cosines]
- rows are read in blocks that fit in a processor's cache, so a table of any size, quantized or remote, is searched in
  constant memory; each core searches its own part
- products are float32; bfloat16 rows are widened by a shift of their bits, several times faster than a conversion. Two
  values at a time are faster still, if even channels come before odd ones, which changes no product
- rows of zeros (padding) and rows with NaN or infinity have no direction and are never returned
- equal cosines are ordered by id, so that a result does not depend on the number of cores
- elsewhere: what a query is, and which rows are allowed (geometry/neighbors.py)
Tested against a plain float64 computation in tests/geometry/test_nearest.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlayer.errors import InputError, ShapeError
from inlayer.shapes import check_size
from inlayer.tables.stored import StoredTable

Vectors = npt.NDArray[np.float32]
Progress = Callable[[int, int], None]  # rows searched so far, rows of the table

BLOCK_VALUES = 2**17  # values per block for few queries: 512 kB in float32, so that several arrays fit in the L2 cache
BATCH_VALUES = 2**19  # for many queries, whose product with a block takes longer than reading it
BLOCK_SCORES = 2**20  # cosines per block
CHUNK_ROWS = 2**12  # rows whose cosines are merged at once, where blocks are smaller
BATCHED = 8  # from this number of queries on, BLAS uses all cores by itself
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NO_DIRECTION = -np.inf


def nearest(
    table: StoredTable,
    queries: npt.ArrayLike,
    k: int,
    *,
    allowed: npt.NDArray[np.bool_] | None = None,
    progress: Progress | None = None,
) -> tuple[npt.NDArray[np.int64], Vectors]:
    """Find the k rows with the largest cosine to each query, nearest first.

    Args:
        table: The rows to search.
        queries: Vectors (Q, D).
        k: Number of rows per query; fewer are returned if fewer have a direction.
        allowed: (V,), true for rows that may be returned; by default all.
        progress: Called with the number of rows searched and of all rows.

    Returns:
        Ids (Q, k) and cosines (Q, k). Places without a row have id -1 and cosine -inf.
    """
    check_size(k, "k")
    queries_QD = _reordered(table, normalized(queries, table.embedding_dim))
    rows, count = table.num_embeddings, len(queries_QD)
    size = max(CHUNK_ROWS, _block_rows(table, count))
    parts = 1 if count >= BATCHED or not isinstance(getattr(table.source, "offset", None), int) else _cores()
    bounds = np.linspace(0, -(-rows // size), parts + 1).astype(int) * size
    done = np.zeros(parts, np.int64)

    def search(part: int) -> tuple[npt.NDArray[np.int64], Vectors]:
        best = Best(count, min(k, rows))
        for start, scores_QN in _scores(table, queries_QD, int(bounds[part]), min(int(bounds[part + 1]), rows)):
            length = scores_QN.shape[1]
            if allowed is not None:
                scores_QN[:, ~allowed[start : start + length]] = NO_DIRECTION
            best.add(start, scores_QN)
            done[part] += length
            if progress is not None and part == 0:
                progress(int(done.sum()), rows)
        return best.ids, best.scores

    if parts == 1:
        found = [search(0)]
    else:
        with ThreadPoolExecutor(parts) as pool:
            found = list(pool.map(search, range(parts)))
    ids_QM = np.concatenate([ids for ids, _ in found], axis=1)
    scores_QM = np.concatenate([scores for _, scores in found], axis=1)
    order_QK = np.lexsort((ids_QM, -scores_QM), axis=1)[:, : min(k, rows)]
    ids_QK, scores_QK = np.take_along_axis(ids_QM, order_QK, 1), np.take_along_axis(scores_QM, order_QK, 1)
    return np.where(np.isfinite(scores_QK), ids_QK, -1), scores_QK


def nearest_to_row(table: StoredTable, row: int, k: int) -> list[tuple[int, float]]:
    """The k rows nearest to a row of the table, as (id, cosine); none if the row has no direction."""
    query_1D = table.rows([row]).astype(np.float64)
    norm = np.linalg.norm(query_1D)
    if norm == 0 or not np.isfinite(norm):
        return []
    ids_1K, cosines_1K = nearest(table, query_1D, k + 1)
    found = zip(ids_1K[0].tolist(), cosines_1K[0].tolist(), strict=True)
    return [(other, min(cosine, 1.0)) for other, cosine in found if other not in (row, -1)][:k]


class Best:
    """The best rows of each query so far, in order."""

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.ids = np.full((queries, k), -1, np.int64)
        self.scores = np.full((queries, k), NO_DIRECTION, np.float32)

    def add(self, start: int, scores_QN: Vectors) -> None:
        """Merge the cosines of a block whose first row is `start`; most blocks have few rows good enough."""
        better = scores_QN > self.scores[:, -1:]
        for query in np.flatnonzero(better.any(axis=1)).tolist():
            found = np.flatnonzero(better[query])
            scores = np.concatenate((self.scores[query], scores_QN[query, found]))
            ids = np.concatenate((self.ids[query], start + found))
            order = np.lexsort((ids, -scores))[: self.k]
            self.ids[query], self.scores[query] = ids[order], scores[order]


def cosine_blocks(table: StoredTable, queries_QD: Vectors) -> Iterator[tuple[int, Vectors]]:
    """Cosines (Q, n) of unit vectors with each block of rows, and the id of its first row; -inf without a direction."""
    return _scores(table, _reordered(table, queries_QD), 0, table.num_embeddings)


def _scores(table: StoredTable, queries_QD: Vectors, first: int, end: int) -> Iterator[tuple[int, Vectors]]:
    size = _block_rows(table, len(queries_QD))
    if len(queries_QD) >= BATCHED:
        for start, rows_ND in _blocks(table, first, end, size):
            with np.errstate(all="ignore"):
                products_QN, squares_N = queries_QD @ rows_ND.T, np.vecdot(rows_ND, rows_ND)
            yield start, _divided(products_QN, squares_N)
        return
    # BLAS would start threads for every block. A block takes microseconds, so what can wait is done once per chunk.
    chunk = -(-CHUNK_ROWS // size) * size
    scores_QN = np.empty((len(queries_QD), chunk), np.float32)
    squares_N = np.empty(chunk, np.float32)
    for start, rows_ND in _blocks(table, first, end, size):
        at, to = (start - first) % chunk, (start - first) % chunk + len(rows_ND)
        with np.errstate(all="ignore"):
            np.vecdot(rows_ND, rows_ND, out=squares_N[at:to])
            for query_D, scores_N in zip(queries_QD, scores_QN, strict=True):
                np.vecdot(rows_ND, query_D, out=scores_N[at:to])
        if to == chunk or start + len(rows_ND) == end:
            yield start - at, _divided(scores_QN[:, :to], squares_N[:to])


def _divided(products_QN: Vectors, squares_N: Vectors) -> Vectors:
    """Cosines, in place, from products with unit vectors and squared norms; -inf for a row without a direction."""
    with np.errstate(all="ignore"):
        norms_N = np.sqrt(squares_N)
        products_QN /= norms_N
    bad_N = ~np.isfinite(norms_N) | (norms_N == 0)
    if bad_N.any():
        products_QN[:, bad_N] = NO_DIRECTION
    return products_QN


def normalized(vectors: npt.ArrayLike, width: int) -> Vectors:
    """Vectors (Q, D) of length 1, in float32."""
    vectors_QD = np.asarray(vectors, np.float64)
    if vectors_QD.ndim != 2 or vectors_QD.shape[1] != width:
        raise ShapeError(f"the query has shape {vectors_QD.shape}; expected (queries, {width})")
    norms_Q = np.linalg.norm(vectors_QD, axis=1, keepdims=True)
    if not np.isfinite(norms_Q).all() or (norms_Q == 0).any():
        raise InputError("the query has no direction: its values are all zero, or not finite")
    units_QD: Vectors = (vectors_QD / norms_Q).astype(np.float32)
    return units_QD


def to_float32(rows: npt.NDArray[Any], out: Vectors | None = None) -> Vectors:
    """Rows in float32, exactly; `out` is memory to use for bfloat16 rows."""
    if rows.dtype == np.float32:
        return rows
    if rows.dtype != BFLOAT16 or not rows.flags.c_contiguous:
        return rows.astype(np.float32)
    wide = np.empty(rows.shape, np.float32) if out is None else out[: len(rows)]
    np.left_shift(rows.view(np.uint16), 16, out=wide.view(np.uint32), dtype=np.uint32, casting="unsafe")
    return wide


def _block_rows(table: StoredTable, queries: int) -> int:
    values = BATCH_VALUES if queries >= BATCHED else BLOCK_VALUES
    return max(1, min(values // table.embedding_dim, BLOCK_SCORES // max(queries, 1)))


def _is_paired(table: StoredTable) -> bool:
    """Whether blocks have even channels before odd ones."""
    return table.stored_dtype == BFLOAT16 and table.embedding_dim % 2 == 0


def _reordered(table: StoredTable, queries_QD: Vectors) -> Vectors:
    """Queries with their channels in the order of the blocks."""
    return np.concatenate((queries_QD[:, ::2], queries_QD[:, 1::2]), axis=1) if _is_paired(table) else queries_QD


def _widen_pairs(rows: npt.NDArray[Any], out: Vectors) -> Vectors:
    """Rows of bfloat16 in float32, even channels before odd ones."""
    pairs, wide, half = np.ascontiguousarray(rows).view("<u4"), out[: len(rows)].view(np.uint32), rows.shape[1] // 2
    np.left_shift(pairs, 16, out=wide[:, :half])
    np.bitwise_and(pairs, np.uint32(0xFFFF0000), out=wide[:, half:])
    return out[: len(rows)]


def _blocks(table: StoredTable, first: int, end: int, size: int) -> Iterator[tuple[int, Vectors]]:
    """Blocks of rows in float32, see `_is_paired`; a local file is mapped, so that its bytes are not copied."""
    paired = _is_paired(table)
    wide = np.empty((size, table.embedding_dim), np.float32)
    whole = table.stored_weight() if table.decode is None and hasattr(table.source, "offset") else None
    for start in range(first, end, size):
        stop = min(start + size, end)
        stored = table.read_stored(np.arange(start, stop)) if whole is None else whole[start:stop]
        yield start, _widen_pairs(stored, wide) if paired else to_float32(stored, wide)
    table.source.check()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
