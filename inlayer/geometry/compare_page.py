"""The maps of two tables side by side, as one HTML page that loads nothing.

two projections, shared tokens -> [page]
- both maps use one method. The second is rotated, mirrored and scaled onto the first (orthogonal Procrustes over shared
  tokens), so that a token has a similar position in both
- shared tokens that moved most and tokens of one model only are colored; hovering and choosing affect both maps
Tested in tests/geometry/test_compare.py, in Chromium in tests/browser/test_map.py.
"""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.geometry.compare import MatchedRows, NamedTable
from inlayer.geometry.map_page import METHODS, all_neighbors, encode, encode_words, maps_page
from inlayer.geometry.projection import TableProjection
from inlayer.render.progress_bar import Progress

MOVED_SHARE = 0.1  # share of the shared tokens that are colored as moved
MOVED_BELOW = 0.99  # cosine
MAX_LISTED = 200
Points = npt.NDArray[np.float32]


def compare_page(
    names: tuple[str, str],
    tables: tuple[NamedTable, NamedTable],
    projections: tuple[TableProjection, TableProjection],
    shared: MatchedRows,
    summary: str,
    progress: Progress | None = None,
) -> str:
    """Return the whole document; `summary` is a sentence about the comparison."""
    points_a = projections[0].points
    points_b = align_points(points_a, projections[1].points, shared)
    order = shared.moved_first()
    moved = order[shared.cosines[order] < MOVED_BELOW][: max(1, int(len(shared.ids_a) * MOVED_SHARE))]
    sides = []
    for (table, words), points, ids, only in (
        (tables[0], points_a, shared.ids_a, shared.only_a), (tables[1], points_b, shared.ids_b, shared.only_b)
    ):  # fmt: skip
        groups = np.zeros(table.num_embeddings, np.uint8)
        groups[only], groups[ids[moved]] = 1, 2
        side: dict[str, Any] = {
            "points": encode(points), "texts": [words.text(token_id) for token_id in range(table.num_embeddings)],
            "words": encode_words(words), "groups": encode(groups, "u1"), "ids": encode(ids, "<i4"), "only": len(only),
        }  # fmt: skip
        sides.append(side | all_neighbors(table, points, progress))
    data = {
        "sides": sides, "names": list(names), "cosines": encode(shared.cosines), "norms_a": encode(shared.norms_a),
        "norms_b": encode(shared.norms_b), "listed": moved[:MAX_LISTED].tolist(), "moved": len(moved),
    }  # fmt: skip
    about = (
        f"{summary} Each map is computed from its own table ({METHODS[projections[0].method]}); map B is rotated onto "
        "map A."
    )
    page = maps_page("compare", "map.css", "compare.css")
    parts = {"a": escape(names[0]), "b": escape(names[1]), "about": escape(about)}
    return page.document(f"{names[0]} and {names[1]}", data, **parts)


def align_points(points_a: Points, points_b: Points, shared: MatchedRows) -> Points:
    """Rotate, mirror, scale and shift the second map so that shared tokens are closest to those of the first."""
    finite = np.isfinite(points_a[shared.ids_a]).all(axis=1) & np.isfinite(points_b[shared.ids_b]).all(axis=1)
    target, moved = (
        points.astype(np.float64) for points in (points_a[shared.ids_a[finite]], points_b[shared.ids_b[finite]])
    )
    if len(target) < 2:
        return points_b
    center_a, center_b = target.mean(axis=0), moved.mean(axis=0)
    target, moved = target - center_a, moved - center_b
    left, _, right = np.linalg.svd(moved.T @ target)
    scale = np.sqrt(np.square(target).sum() / max(float(np.square(moved).sum()), 1e-12))
    aligned: Points = ((points_b - center_b) @ (left @ right) * scale + center_a).astype(np.float32)
    return aligned
