"""PCA of a table: two coordinates for every row, in the plane where the rows spread most. Numpy only.

table -> [coordinates (V, 2)] -> map
- rows are centered; those without a direction (zeros, NaN, infinity) have no coordinates and become NaN
- up to EXACT_WIDTH channels the covariance is computed exactly. Wider tables use subspace iteration, which reads the
  table once per iteration and stops when the plane no longer turns
- the largest loading of an axis is positive, so that the same table always gives the same picture
- elsewhere: how faithful a map is (geometry/distortion.py)
Tested against numpy's SVD in tests/geometry/test_projection.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inlayer.errors import InputError
from inlayer.geometry.nearest import Progress, to_float32
from inlayer.tables.stored import StoredTable

__all__ = ["Projection", "pca"]

EXACT_WIDTH = 1024
BLOCK_VALUES = 2**21
SUBSPACE, MAX_PASSES, TOLERANCE = 16, 12, 1e-6
AXES = 2
Floats = npt.NDArray[np.float64]


class Projection(NamedTuple):
    """A map of a table.

    method: "pca" or "tsne".
    points: (V, 2) float32; NaN for rows without a direction.
    explained: Share of the variance in the two axes (PCA only).
    """

    method: str
    points: npt.NDArray[np.float32]
    explained: float | None = None


def pca(table: StoredTable, progress: Progress | None = None) -> Projection:
    """Project every row onto the two directions of largest variance."""
    width = table.embedding_dim
    mean_D, valid_V, total = _statistics(table)
    if int(valid_V.sum()) < AXES + 1:
        raise InputError(f"the table has {int(valid_V.sum())} rows with a direction; a map needs at least {AXES + 1}")
    if width == 1:
        axes_DA = np.eye(1, AXES)
    elif width <= EXACT_WIDTH:
        covariance = np.zeros((width, width))
        for _, rows in _centered(table, mean_D, progress):
            covariance += rows.T @ rows
        axes_DA = np.linalg.eigh(covariance)[1][:, ::-1][:, :AXES]
    else:
        axes_DA = _subspace(table, mean_D, progress)
    axes_DA = axes_DA * np.where(axes_DA[np.abs(axes_DA).argmax(axis=0), np.arange(AXES)] < 0, -1.0, 1.0)
    points_VA = np.full((table.num_embeddings, AXES), np.nan, np.float32)
    for start, rows in _centered(table, mean_D, None):
        points_VA[start : start + len(rows)] = rows @ axes_DA.astype(np.float32)
    points_VA[~valid_V] = np.nan
    spread = float(np.square(points_VA[valid_V], dtype=np.float64).sum())
    return Projection("pca", points_VA, min(spread / total, 1.0) if total else None)


def _statistics(table: StoredTable) -> tuple[Floats, npt.NDArray[np.bool_], float]:
    """The mean of the valid rows, which rows are valid, and the total variance times their number."""
    sum_D, squares = np.zeros(table.embedding_dim), 0.0
    valid_V = np.zeros(table.num_embeddings, np.bool_)
    for start, rows in _blocks(table):
        with np.errstate(all="ignore"):
            norms = np.vecdot(rows, rows)
        valid = np.isfinite(norms) & (norms > 0)
        valid_V[start : start + len(rows)] = valid
        sum_D += rows[valid].sum(axis=0, dtype=np.float64)
        squares += float(norms[valid].sum(dtype=np.float64))
    mean_D = sum_D / max(int(valid_V.sum()), 1)
    return mean_D, valid_V, squares - int(valid_V.sum()) * float(mean_D @ mean_D)


def _subspace(table: StoredTable, mean_D: Floats, progress: Progress | None) -> Floats:
    """The leading axes by subspace iteration."""
    basis_DS = np.linalg.qr(np.random.default_rng(0).standard_normal((table.embedding_dim, SUBSPACE)))[0]
    before: Floats | None = None
    for _ in range(MAX_PASSES):
        product_DS = np.zeros_like(basis_DS)
        narrow = basis_DS.astype(np.float32)
        for _, rows in _centered(table, mean_D, progress):
            product_DS += rows.T @ (rows @ narrow)
        basis_DS, triangle = np.linalg.qr(product_DS)
        rotation = np.linalg.svd(triangle)[0]
        leading = basis_DS @ rotation[:, :AXES]
        basis_DS = basis_DS @ rotation
        if before is not None and AXES - np.square(before.T @ leading).sum() < TOLERANCE:
            break
        before = leading
    return leading


def _centered(table: StoredTable, mean_D: Floats, progress: Progress | None) -> Iterator[tuple[int, Any]]:
    """Blocks of rows minus their mean; rows without a direction are zero."""
    mean = mean_D.astype(np.float32)
    for start, rows in _blocks(table):
        with np.errstate(all="ignore"):
            norms = np.vecdot(rows, rows)
        centered = rows - mean
        centered[~(np.isfinite(norms) & (norms > 0))] = 0
        yield start, centered
        if progress is not None:
            progress(start + len(rows), table.num_embeddings)


def _blocks(table: StoredTable) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    size = max(1, BLOCK_VALUES // table.embedding_dim)
    for start in range(0, table.num_embeddings, size):
        yield start, to_float32(table.read_stored(np.arange(start, min(start + size, table.num_embeddings))))
