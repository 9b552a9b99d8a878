"""Exact nearest rows of a table by cosine similarity: every row is compared with every query. Numpy only.

table, queries -> [ids, cosines]
- rows are read in blocks that fit in the processor's cache, so a table of any size, even quantized or remote, is
  searched in constant memory; each core searches its own part
- products are float32; bfloat16 rows are widened by a shift of their bits, several times faster than a conversion
- for few queries, a bfloat16 file is searched twice: approximately for candidates, then exactly among them. This is
  twice as fast as the exact search of all rows, and its results are the same
- rows of zeros (padding) and rows with NaN or infinity are never returned
- rows whose squares overflow or underflow in float32 are computed in float64
- equal cosines are ordered by id, so a result does not depend on the number of cores
- see also: what a query is, and which rows are allowed (geometry/neighbors.py)
Tested against a plain float64 computation in tests/geometry/test_nearest.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlayer.checks import check_size
from inlayer.errors import InputError, ShapeError
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Array, Ids, Mask, Numbers, Vectors
from inlayer.tables.stored_table import StoredTable
from inlayer.threads import core_count, map_in_threads, one_blas_thread

BLOCK_VALUES = 2**17  # values per block for few queries: 512 kB in float32, so several arrays fit in the L2 cache
BATCH_VALUES = 2**19  # for many queries: multiplying them by a block takes longer than reading it
BLOCK_SCORES = 2**20  # cosines per block
CHUNK_ROWS = 2**12  # rows whose cosines are merged together, if blocks are smaller
MIN_BATCHED_QUERIES = 8  # with this many queries or more, BLAS multiplies them with each block
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NO_DIRECTION = -np.inf
MIN_SQUARE = 2.0**-100  # smaller sums of squares have lost bits to underflow
# Values of an approximate search that are widened in one call. In shorter calls, our threads wait for the interpreter
# lock; in longer ones, OpenBLAS starts its own threads.
ROUGH_VALUES = 2**18
NOISE = 2.0**-7  # largest relative change of a value caused by the bits below it
ROUGH_ROUNDING = 2.0**-22  # error per channel that float32 sums can add to an approximate and an exact cosine in total
MIN_NORM = 2.0**-40  # squares of shorter rows may underflow, so their approximate cosines are unreliable
SEARCHES: WeakKeyDictionary[StoredTable, CandidateSearch] = WeakKeyDictionary()  # keep files mapped


def nearest(
    table: StoredTable, queries: npt.ArrayLike, k: int, *, allowed: Mask | None = None, progress: Progress = no_progress
) -> tuple[Ids, Vectors]:
    """Return the ids (Q, k) and cosines (Q, k) of the rows nearest to each query (Q, D), nearest first.

    If fewer than k rows are nonzero, finite, and `allowed` (V,), the other entries have id -1 and cosine -inf.
    """
    check_size(k, "k")
    queries_QD = normalized(queries, table.embedding_dim)
    rows, count = table.num_embeddings, len(queries_QD)
    k = min(k, rows)
    few, mapped = count < MIN_BATCHED_QUERIES, _is_mapped(table)
    if few and mapped and table.stored_dtype == BFLOAT16 and table.embedding_dim % 2 == 0:
        # The approximate search reads all rows with every core; the exact search reads only its candidates.
        table.source.check_unmodified()  # reading mapped pages of a truncated file would kill the process
        rough = SEARCHES.get(table) or SEARCHES.setdefault(table, CandidateSearch(table.stored_weight()))
        allowed_V = np.ones(rows, bool) if allowed is None else allowed
        ids_by_core = [rough.candidates(queries_QD, k, allowed_V, progress)]
        progress = no_progress
    else:  # the exact search reads all rows; each core, a part of them
        ids_by_core = np.array_split(np.arange(rows), core_count() if mapped else 1)

    def search(core: int) -> tuple[Ids, Vectors]:
        best = TopRows(count, k)
        for ids_N, scores_QN in cosine_blocks(table, queries_QD, ids_by_core[core]):
            if allowed is not None:
                scores_QN[:, ~allowed[ids_N]] = NO_DIRECTION
            best.add(ids_N, scores_QN)
            if core == 0:  # other cores have made about the same progress
                progress(min((int(ids_N[-1]) + 1) * len(ids_by_core), rows), rows)
        return best.merge()

    with nullcontext() if few or len(ids_by_core) == 1 else one_blas_thread():
        results = map_in_threads(search, range(len(ids_by_core)))
    ids_QM, scores_QM = (np.concatenate(arrays, axis=1) for arrays in zip(*results, strict=True))
    order_QK = np.lexsort((ids_QM, -scores_QM), axis=1)[:, :k]
    ids_QK, scores_QK = np.take_along_axis(ids_QM, order_QK, 1), np.take_along_axis(scores_QM, order_QK, 1)
    return np.where(np.isfinite(scores_QK), ids_QK, -1), scores_QK


def nearest_excluding_self(
    table: StoredTable, own_ids: npt.ArrayLike, queries: npt.ArrayLike, k: int, **options: Any
) -> tuple[Ids, Vectors]:
    """Like `nearest`, but exclude the row that each query comes from: `own_ids` (Q,)."""
    ids_QK, scores_QK = nearest(table, queries, k + 1, **options)
    left_out_QK = ids_QK == np.asarray(own_ids)[:, None]
    left_out_QK[~left_out_QK.any(axis=1), -1] = True  # at least k others are nearer, or equal with smaller ids
    shape = len(ids_QK), ids_QK.shape[1] - 1
    return ids_QK[~left_out_QK].reshape(shape), scores_QK[~left_out_QK].reshape(shape)


def nearest_to_row(table: StoredTable, row: int, k: int) -> list[tuple[int, float]]:
    """Return the k rows nearest to a row of the table, as (id, cosine); [] if the row is zero or not finite."""
    query_1D = table.rows([row]).astype(np.float64)
    norm = np.linalg.norm(query_1D)
    if norm == 0 or not np.isfinite(norm):
        return []
    ids_1K, cosines_1K = nearest_excluding_self(table, [row], query_1D, k)
    pairs = zip(ids_1K[0].tolist(), cosines_1K[0].tolist(), strict=True)
    return [(other, min(cosine, 1.0)) for other, cosine in pairs if other >= 0]


class TopRows:
    """The best rows for each query so far. Rows that may belong to them are collected, and merged many at a time."""

    def __init__(self, queries: int, k: int) -> None:
        self._ids = np.full((queries, k), -1, np.int64)
        self._scores = np.full((queries, k), NO_DIRECTION, np.float32)
        self._worst_Q = self._scores[:, -1]  # at most the k-th best score of each query
        self._pending: list[tuple[Ids, Ids, Vectors]] = []  # queries, ids, scores

    def add(self, ids_N: Ids, scores_QN: Vectors) -> None:
        """Collect the rows of a block that are better than the worst so far; most blocks have few."""
        queries, k = self._ids.shape
        if len(ids_N) > k and np.isneginf(self._worst_Q).any():  # from the first block, keep only the best rows
            kth_Q = np.partition(scores_QN, -k, 1)[:, -k]
            self._worst_Q = np.maximum(self._worst_Q, np.nextafter(kth_Q, np.float32(-np.inf)))
        worst_Q = self._worst_Q
        improved = np.flatnonzero(scores_QN.max(1) > worst_Q)  # faster than comparing all scores
        scores_IN = scores_QN[improved]
        flat = np.flatnonzero(scores_IN > worst_Q[improved, None])  # several times faster than nonzero with two axes
        rows, columns = np.divmod(flat, len(ids_N))
        self._pending.append((improved[rows], ids_N[columns], scores_IN.reshape(-1)[flat]))
        if sum(len(rows) for rows, _, _ in self._pending) > 4 * queries * k:
            self.merge()

    def merge(self) -> tuple[Ids, Vectors]:
        """Return the ids and scores (Q, k) of the best rows, in order."""
        queries, k = self._ids.shape
        current = np.repeat(np.arange(queries), k), self._ids.reshape(-1), self._scores.reshape(-1)
        rows, ids, scores = (np.concatenate(parts) for parts in zip(current, *self._pending, strict=True))
        order = np.lexsort((-scores, rows))  # stable: equal scores stay in the order of their ids
        first = np.searchsorted(rows[order], np.arange(queries))[:, None] + np.arange(k)
        self._ids, self._scores, self._pending = ids[order][first], scores[order][first], []
        self._worst_Q = np.maximum(self._worst_Q, self._scores[:, -1])
        return self._ids, self._scores


def cosine_blocks(table: StoredTable, queries_QD: Vectors, ids: Ids) -> Iterator[tuple[Ids, Vectors]]:
    """Yield the cosines (Q, n) of unit vectors with rows of ascending ids, block by block; -inf for unusable rows."""
    many = len(queries_QD) >= MIN_BATCHED_QUERIES
    values = BATCH_VALUES if many else BLOCK_VALUES
    size = max(1, min(values // table.embedding_dim, BLOCK_SCORES // max(len(queries_QD), 1)))
    # Without BLAS, a block takes microseconds, so anything that can wait is done once per chunk of several blocks.
    chunk = size if many else -(-CHUNK_ROWS // size) * size
    scores_QN, squares_N = np.empty((len(queries_QD), chunk), np.float32), np.empty(chunk, np.float32)
    for start, rows_ND in float32_blocks(table, ids, size):
        begin, end = start % chunk, start % chunk + len(rows_ND)
        with np.errstate(all="ignore"):
            np.vecdot(rows_ND, rows_ND, out=squares_N[begin:end])
            if many:
                np.matmul(queries_QD, rows_ND.T, out=scores_QN[:, begin:end])
            else:  # BLAS would start threads for every block
                for query_D, scores_N in zip(queries_QD, scores_QN, strict=True):
                    np.vecdot(rows_ND, query_D, out=scores_N[begin:end])
        if end == chunk or start + len(rows_ND) == len(ids):
            ids_N, scores = ids[start - begin : start - begin + end], scores_QN[:, :end]
            _make_cosines(table, ids_N, queries_QD, scores, squares_N[:end])
            yield ids_N, scores


def _make_cosines(
    table: StoredTable, ids_N: Ids, queries_QD: Vectors, products_QN: Vectors, squares_N: Vectors
) -> None:
    """Turn products into cosines in place, -inf for zero and non-finite rows; sums that overflowed are repaired."""
    extreme, size = _extreme(squares_N), max(1, BLOCK_VALUES // table.embedding_dim)
    for start in range(0, len(extreme), size):
        which = extreme[start : start + size]
        wide = to_float32(table.read_stored(ids_N[which])).astype(np.float64)
        norms = np.sqrt(np.vecdot(wide, wide))
        squares_N[which] = usable = np.isfinite(norms) & (norms > 0)
        units, which = wide[usable] / norms[usable, None], which[usable]
        for query_D, products_N in zip(queries_QD, products_QN, strict=True):
            products_N[which] = np.vecdot(units, query_D)
    with np.errstate(all="ignore"):
        products_QN /= np.sqrt(squares_N)
    products_QN[:, squares_N == 0] = NO_DIRECTION


def square_norms(rows_ND: Vectors) -> Numbers:
    """Return squared norms (N,), correct even for rows whose squares overflow or underflow in float32."""
    with np.errstate(all="ignore"):
        squares_N: Numbers = np.vecdot(rows_ND, rows_ND).astype(np.float64)
    extreme = _extreme(squares_N)
    wide = rows_ND[extreme].astype(np.float64)
    squares_N[extreme] = np.vecdot(wide, wide)
    return squares_N


def _extreme(squares_N: Array) -> Ids:
    """Return the indices of sums of squares outside the range of float32, zero and non-finite rows included."""
    return np.flatnonzero(~((squares_N >= MIN_SQUARE) & (squares_N < np.inf)))


def normalized(vectors: npt.ArrayLike, width: int) -> Vectors:
    """Return vectors (Q, D) of norm 1, in float32."""
    vectors_QD = np.asarray(vectors, np.float64)
    if vectors_QD.ndim != 2 or vectors_QD.shape[1] != width:
        raise ShapeError(f"the query has shape {vectors_QD.shape}; expected (queries, {width})")
    norms_Q = np.linalg.norm(vectors_QD, axis=1, keepdims=True)
    if not np.isfinite(norms_Q).all() or (norms_Q == 0).any():
        raise InputError("the query is zero or not finite, so it has no neighbors")
    units_QD: Vectors = (vectors_QD / norms_Q).astype(np.float32)
    return units_QD


def to_float32(rows: Array, out: Vectors | None = None) -> Vectors:
    """Convert rows to float32, exactly; `out` is memory to use for bfloat16 rows."""
    if rows.dtype == np.float32:
        return rows
    if rows.dtype != BFLOAT16 or not rows.flags.c_contiguous:
        with np.errstate(over="ignore"):  # float64 values may overflow
            return rows.astype(np.float32)
    wide = np.empty(rows.shape, np.float32) if out is None else out[: len(rows)]
    np.left_shift(rows.view(np.uint16), 16, out=wide.view(np.uint32), dtype=np.uint32, casting="unsafe")
    return wide


def _is_mapped(table: StoredTable) -> bool:
    """Return whether the rows of a local file are used in place, without a copy."""
    return table.decode_rows is None and isinstance(getattr(table.source, "offset", None), int)


def float32_blocks(table: StoredTable, ids: Ids, size: int) -> Iterator[tuple[int, Vectors]]:
    """Yield rows of ascending ids in float32, in blocks with the index of their first id.

    The next block may overwrite the previous one.
    """
    wide = np.empty((size, table.embedding_dim), np.float32)
    whole = table.stored_weight() if _is_mapped(table) else None
    for start in range(0, len(ids), size):
        block = ids[start : start + size]
        if whole is not None and block[-1] - block[0] < len(block):  # the rows are adjacent
            yield start, to_float32(whole[block[0] : block[-1] + 1], wide)
        else:
            yield start, to_float32(table.read_stored(block), wide)
    table.source.check_unmodified()


class CandidateSearch:
    """The approximate search: one pass over a bfloat16 table of even width finds the rows that may be the nearest.

    A pair of bfloat16 values, read as one float32, is approximately its second value: the bits of the first become the
    lowest bits. Leaving them in place means that half of the values need no copy. A row is a candidate unless k others
    are certainly nearer, so the exact cosines of the few candidates give the exact result for any table. Norms are
    kept, because computing them takes half the time of a query.

    How far an approximate cosine can be off: the lowest bits change each value in an odd channel of a row x by less
    than NOISE of itself. With the odd channels q' of a unit vector q, by the Cauchy-Schwarz inequality,

        the product q·x changes by at most  NOISE |q'| |x|
        the norm |x| changes by at most     NOISE |x|
        so the cosine changes by at most    NOISE (|q'| + |approximate cosine|)

    2 * NOISE**2 is added for zeros and subnormal values, which change by less than 2**-133 instead, and
    ROUGH_ROUNDING per channel for the rounding of float32 sums. The bound does not hold for very short rows, which are
    always candidates, as are rows with NaN or infinity.
    """

    def __init__(self, rows_VD: Array) -> None:
        self._pairs_VH = rows_VD.view("<u4")
        self._norms_V: Vectors | None = None

    def candidates(self, queries_QD: Vectors, k: int, allowed: Mask, progress: Progress = no_progress) -> Ids:
        """Return the ids, ascending, of the `allowed` rows (V,) that may be among the k nearest of a unit vector."""
        products_QV, norms_V = self._approximate_products(queries_QD, progress)
        reliable_V = (norms_V > MIN_NORM) & np.isfinite(norms_V)
        candidate_V = allowed & ~reliable_V
        for query_D, products_V in zip(queries_QD, products_QV, strict=True):
            with np.errstate(all="ignore"):
                rough_V = np.where(reliable_V, products_V / norms_V, 0)
            odd_norm, rounding = np.linalg.norm(query_D[1::2]), ROUGH_ROUNDING * len(query_D)
            error_V = NOISE * (odd_norm + np.abs(rough_V) + 2 * NOISE) + rounding
            lower_V = np.where(reliable_V & allowed, rough_V - error_V, -np.inf)
            candidate_V |= allowed & (rough_V + error_V >= np.partition(lower_V, -k)[-k])
        return np.flatnonzero(candidate_V)

    def _approximate_products(self, queries_QD: Vectors, progress: Progress) -> tuple[Vectors, Vectors]:
        """Compute products (Q, V) and norms (V,), with noise from neighboring bits in the odd channels."""
        count, half = self._pairs_VH.shape
        even_QH, odd_QH = np.ascontiguousarray(queries_QD[:, ::2]), np.ascontiguousarray(queries_QD[:, 1::2])
        products_QV = np.empty((len(queries_QD), count), np.float32)
        squares_V = np.empty(count if self._norms_V is None else 0, np.float32)
        size = max(1, ROUGH_VALUES // half)
        bounds = np.linspace(0, count, core_count() + 1).astype(int).tolist()

        def search(part: int) -> None:
            first, end = bounds[part : part + 2]
            wide, other = np.empty((size, half), np.float32), np.empty(size, np.float32)
            for start in range(first, end, size):
                stop = min(start + size, end)
                pairs, even = self._pairs_VH[start:stop], wide[: stop - start]
                odd = pairs.view(np.float32)
                with np.errstate(all="ignore"):
                    np.left_shift(pairs, 16, out=even.view(np.uint32))
                    if len(squares_V):
                        np.add(np.vecdot(even, even), np.vecdot(odd, odd), out=squares_V[start:stop])
                    for even_H, odd_H, products_V in zip(even_QH, odd_QH, products_QV, strict=True):
                        np.dot(even, even_H, out=products_V[start:stop])
                        products_V[start:stop] += np.dot(odd, odd_H, out=other[: stop - start])
                if end == count:
                    progress((stop - first) * count // (end - first), count)

        map_in_threads(search, range(len(bounds) - 1))
        if self._norms_V is None:
            self._norms_V = np.sqrt(squares_V)
        return products_QV, self._norms_V
