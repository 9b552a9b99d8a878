"""How faithful a map of a table is: how much of the neighborhoods two dimensions preserve.

table, points (V, 2) -> [distortion]
- neighborhood preservation: the share of a row's K nearest rows (by cosine) that are also among its K nearest points
  on the map
- trustworthiness (Venna and Kaski, 2001): 1 if every neighbor on the map is a true neighbor. A false neighbor
  costs more, the further down the true ranking it is
- both are measured exactly for each row of a sample, against all rows of the table
Tested against scikit-learn's trustworthiness in tests/geometry/test_projection.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from inlayer.geometry.nearest import cosine_blocks, normalized, to_float32
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.tables.stored_table import StoredTable

ROUNDING = 2.0**-22  # cosines of equal rows can differ by this; a row as near as another is not a worse neighbor
BATCH_SCORES = 2**22  # cosines in memory at once: 16 MB, unless the table has more rows


class Distortion(NamedTuple):
    """The faithfulness of a map.

    k: Neighbors considered per row.
    ids: The rows that were measured.
    neighborhood_preservation: (n,) share of the true neighbors of each that are neighbors on the map.
    trustworthiness: 1 if no neighbor on the map is a false one.
    """

    k: int
    ids: npt.NDArray[np.int64]
    neighborhood_preservation: npt.NDArray[np.float32]
    trustworthiness: float


def measure_distortion(
    table: StoredTable,
    points: npt.NDArray[np.float32],
    *,
    k: int = 10,
    sample: int = 1000,
    progress: Progress = no_progress,
) -> Distortion:
    """Compare the neighborhoods of a sample of rows with those on the map."""
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    k = min(k, max(1, (len(known) - 1) // 2))
    ids = known[np.linspace(0, len(known) - 1, min(sample, len(known))).astype(np.int64)]
    preservations, penalties = np.zeros(len(ids), np.float32), 0.0
    batch = max(32, BATCH_SCORES // table.num_embeddings)
    usable = np.zeros(table.num_embeddings, np.bool_)
    usable[known] = True
    x_V, y_V = np.where(usable, points.T, np.inf).astype(np.float32)
    for start in range(0, len(ids), batch):
        queries = ids[start : start + batch]
        scores_QV = np.empty((len(queries), table.num_embeddings), np.float32)
        units = normalized(to_float32(table.rows(queries)), table.embedding_dim)
        for ids_N, block in cosine_blocks(table, units, np.arange(table.num_embeddings)):
            scores_QV[:, ids_N[0] : ids_N[-1] + 1] = block
        scores_QV[:, ~usable] = -np.inf
        for index, token_id in enumerate(queries.tolist()):
            scores_V = scores_QV[index]
            scores_V[token_id] = np.inf  # the row itself is not counted as a neighbor
            distance_V = np.square(x_V - x_V[token_id]) + np.square(y_V - y_V[token_id])
            distance_V[token_id] = -1.0
            on_map = np.argpartition(distance_V, k)[: k + 1]
            on_map = on_map[on_map != token_id][:k]
            # The nearest row has rank 1, because the row itself counts once.
            ranks = np.count_nonzero(scores_V[None] > scores_V[on_map, None] + ROUNDING, axis=1)
            preservations[start + index] = (ranks <= k).mean()
            penalties += float(np.maximum(ranks - k, 0).sum())
        progress(min(start + batch, len(ids)), len(ids))
    n = len(known)
    scale = 2.0 / (len(ids) * k * (2 * n - 3 * k - 1))
    return Distortion(k, ids, preservations, 1.0 - scale * penalties)
