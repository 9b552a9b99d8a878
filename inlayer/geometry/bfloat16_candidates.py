"""Rows of a bfloat16 table that may be among the nearest: one pass over its bytes, with bounded error. Numpy only.

table, queries -> [candidates] -> ids, cosines
- a pair of bfloat16 values, read as one float32, is approximately its second value: the bits of the first become the
  lowest bits and change it by less than 2**-7 of its value. Leaving those bits in place means that half of the values
  need no copy
- the error of each rough cosine is bounded. A row is a candidate unless k others are certainly nearer, so the exact
  cosines of the few candidates give the exact result for any table
- a file's mapping and its rows' norms are cached with the table, because creating either takes half the time of a query
- see also: the exact cosines (geometry/nearest.py)
Tested through the search in tests/geometry/test_nearest.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.render.progress_bar import Progress, no_progress
from inlayer.threads import core_count, map_in_threads

Vectors = npt.NDArray[np.float32]

# Values that are widened at once. In shorter calls, our threads wait for the interpreter lock; in longer ones, OpenBLAS
# starts its own threads.
BLOCK_VALUES = 2**18
NOISE = 2.0**-7  # largest relative change of a value by the bits below it
ROUNDING = 2.0**-22  # error per channel that float32 sums can add to rough and exact cosines together
MIN_NORM = 2.0**-40  # squares of shorter rows may underflow, so their rough cosines are unreliable


class CandidateSearch:
    """Searches a bfloat16 table of even width for candidates."""

    def __init__(self, rows_VD: npt.NDArray[Any]) -> None:
        self._pairs_VH = rows_VD.view("<u4")
        self._norms_V: Vectors | None = None

    def candidates(
        self, queries_QD: Vectors, k: int, allowed: npt.NDArray[np.bool_], progress: Progress = no_progress
    ) -> npt.NDArray[np.int64]:
        """Return the ids, ascending, of the `allowed` rows (V,) that may be among the k nearest of a unit vector."""
        products_QV, norms_V = self._rough(queries_QD, progress)
        sure_V = (norms_V > MIN_NORM) & np.isfinite(norms_V)
        candidate_V = allowed & ~sure_V
        for query_D, products_V in zip(queries_QD, products_QV, strict=True):
            with np.errstate(all="ignore"):
                rough_V = np.where(sure_V, products_V / norms_V, 0)
            # The product changes by at most NOISE * the norm of the odd channels, the norm by at most NOISE of itself.
            error_V = NOISE * (np.linalg.norm(query_D[1::2]) + np.abs(rough_V) + 2 * NOISE) + ROUNDING * len(query_D)
            lower_V = np.where(sure_V & allowed, rough_V - error_V, -np.inf)
            candidate_V |= allowed & (rough_V + error_V >= np.partition(lower_V, -k)[-k])
        return np.flatnonzero(candidate_V)

    def _rough(self, queries_QD: Vectors, progress: Progress) -> tuple[Vectors, Vectors]:
        """Compute products (Q, V) and norms (V,), with noise from neighboring bits in the odd channels."""
        count, half = self._pairs_VH.shape
        even_QH, odd_QH = np.ascontiguousarray(queries_QD[:, ::2]), np.ascontiguousarray(queries_QD[:, 1::2])
        products_QV = np.empty((len(queries_QD), count), np.float32)
        squares_V = np.empty(count if self._norms_V is None else 0, np.float32)
        size = max(1, BLOCK_VALUES // half)
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
