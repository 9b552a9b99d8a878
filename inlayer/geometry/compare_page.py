"""The maps of two tables side by side, as one HTML page that loads nothing.

two projections, shared tokens -> [page]
- both maps use the same method. The second is rotated, mirrored and scaled onto the first (orthogonal Procrustes over
  shared tokens), so that a token has a similar position in both
- the shared tokens that moved most, and the tokens that only one model has, are colored; hovering and choosing a token
  affect both maps
- the side panel has the facts of the terminal report, and the lists of tokens behind them
Tested in tests/geometry/test_compare.py, in Chromium in tests/browser/test_map.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.geometry.compare import MatchedRows
from inlayer.geometry.map_page import METHODS, all_neighbors, encode, encode_words, maps_page
from inlayer.geometry.projection import TableProjection
from inlayer.render.progress_bar import Progress, no_progress

MOVED_SHARE = 0.1  # share of the shared tokens that are colored as moved
MOVED_BELOW = 0.99  # cosine
MOVED_NORM = 1.1  # ratio of the norms; not compared if the second table was rotated, because its units differ
MAX_LISTED = 200
Points = npt.NDArray[np.float32]


def compare_page(
    names: tuple[str, str],
    projections: tuple[TableProjection, TableProjection],
    shared: MatchedRows,
    facts: Sequence[tuple[str, str]],
    progress: Progress = no_progress,
) -> str:
    """Return the whole document; `facts` are labels and texts of the comparison."""
    points_a = projections[0].points
    points_b = align_points(points_a, projections[1].points, shared)
    order = shared.moved_first()
    with np.errstate(divide="ignore"):
        norm_change = np.abs(np.log(shared.norms_b[order] / shared.norms_a[order]))
    has_moved = (shared.cosines[order] < MOVED_BELOW) | (not shared.aligned and norm_change > math.log(MOVED_NORM))
    moved = order[has_moved][: max(1, int(len(shared.cosines) * MOVED_SHARE))]
    damaged = shared.damaged()
    sides = []
    for (table, words, ids, only), points in ((shared.a, points_a), (shared.b, points_b)):
        groups = np.zeros(table.num_embeddings, np.uint8)
        groups[only], groups[ids[moved]] = 1, 2
        side: dict[str, Any] = {
            "points": encode(points), "texts": [words.text(token_id) for token_id in range(table.num_embeddings)],
            "words": encode_words(words), "groups": encode(groups, "u1"), "ids": encode(ids, "<i4"), "only": len(only),
        }  # fmt: skip
        sides.append(side | all_neighbors(table, points, progress))
    data = {
        "sides": sides, "cosines": encode(shared.cosines),
        "norms_a": encode(shared.norms_a, "<f8"), "norms_b": encode(shared.norms_b, "<f8"),
        "moved": moved[:MAX_LISTED].tolist(), "n_moved": int(has_moved.sum()),
        "damaged": damaged[:MAX_LISTED].tolist(), "n_damaged": len(damaged),
    }  # fmt: skip
    or_norm = "" if shared.aligned else f", or a norm that changed by more than {MOVED_NORM - 1:.0%}"
    about = (
        f"Each map is computed from its own table ({METHODS[projections[0].method]}); map B is rotated onto map A. "
        f"Moved: a cosine below {MOVED_BELOW}{or_norm}."
    )
    parts = {
        "a": escape(names[0]), "b": escape(names[1]), "about": escape(about),
        "facts": "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in facts),
    }  # fmt: skip
    return maps_page("compare", "map.css", "compare.css").document(f"{names[0]} and {names[1]}", data, **parts)


def align_points(points_a: Points, points_b: Points, shared: MatchedRows) -> Points:
    """Rotate, mirror, scale and shift the second map so that shared tokens are closest to their places on the first."""
    target, moved = points_a[shared.a.ids].astype(np.float64), points_b[shared.b.ids].astype(np.float64)
    finite = np.isfinite(target).all(axis=1) & np.isfinite(moved).all(axis=1)
    target, moved = target[finite], moved[finite]
    if len(target) < 2:
        return points_b
    center_a, center_b = target.mean(axis=0), moved.mean(axis=0)
    target, moved = target - center_a, moved - center_b
    left, _, right = np.linalg.svd(moved.T @ target)
    scale = np.sqrt(np.square(target).sum() / max(float(np.square(moved).sum()), 1e-12))
    aligned: Points = ((points_b - center_b) @ (left @ right) * scale + center_a).astype(np.float32)
    return aligned
