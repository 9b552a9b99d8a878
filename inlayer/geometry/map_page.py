"""The map of a table as one HTML page that loads nothing, as a labeled picture, or as a Parquet file.

projection -> [page, picture, file]
- coordinates and neighbors are embedded as base64; tokens as JSON that cannot end its script element
- true neighbors of every row are embedded for tables of up to MAX_NEIGHBOR_ROWS rows: finding them compares every row
  with every other
Tested in Chromium in tests/browser/test_map.py, the files in tests/geometry/test_commands.py.
"""

from __future__ import annotations

import base64
import io
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import MissingExtraError
from inlayer.geometry.distortion import Distortion
from inlayer.geometry.nearest import Progress, nearest, to_float32
from inlayer.geometry.projection import TableProjection
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.render import embed_json, fill_page, hash_of, style_sheet
from inlayer.tables.stored import StoredTable

__all__ = ["map_page", "map_parquet", "map_picture"]

MAX_NEIGHBOR_ROWS = 60_000
NEIGHBORS = 10
LABELS = 60  # of a picture
METHODS = {"pca": "Principal components", "tsne": "t-SNE"}


def map_page(
    title: str,
    table: StoredTable,
    vocabulary: Vocabulary,
    projection: TableProjection,
    distortion: Distortion,
    progress: Progress | None = None,
) -> str:
    """The whole document."""
    rows = table.num_embeddings
    data: dict[str, Any] = {
        "texts": [vocabulary.text(token_id) for token_id in range(rows)],
        "points": _base64(projection.points.astype("<f4")),
        "measured": distortion.k,
        "kept": _base64(_kept(rows, distortion).astype("<f4")),
        "k": NEIGHBORS,
    }
    if rows <= MAX_NEIGHBOR_ROWS:
        ids, cosines = _all_neighbors(table, projection, progress)
        data |= {"near": _base64(ids.astype("<i4")), "cosines": _base64(cosines.astype("<f4"))}
    here = files("inlayer.geometry") / "page"
    style, script = style_sheet() + (here / "map.css").read_text("utf-8"), (here / "map.js").read_text("utf-8")
    holes = int(np.isnan(projection.points).any(axis=1).sum())
    missing = f"Rows without a direction, which are not drawn: {holes:,}. " if holes else ""
    about = (
        f"{METHODS[projection.method]}{'' if projection.complete else ' (interrupted)'}. {distortion.kept.mean():.0%} "
        f"of the {distortion.k} true nearest tokens stay neighbors on this map; trustworthiness "
        f"{distortion.trustworthiness:.2f}. {missing}Click a token to see its true neighbors."
    )
    parts = {
        "title": escape(title), "heading": escape(title), "rows": f"{rows:,}", "about": escape(about),
        "style": style, "script": script,
        "data": embed_json(data),
        "policy": f"default-src 'none'; script-src '{hash_of(script)}'; style-src '{hash_of(style)}'; base-uri 'none'; "
                  "form-action 'none'",
    }  # fmt: skip
    return fill_page((here / "map.html").read_text("utf-8"), parts)


def map_picture(title: str, vocabulary: Vocabulary, projection: TableProjection) -> bytes:
    """A PNG of all points, with labels on an evenly spaced selection of words."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("a picture needs matplotlib: pip install 'inlayer[map]'") from error
    mpl.use("Agg")
    from matplotlib import pyplot

    points = projection.points
    drawn = np.isfinite(points).all(axis=1)
    figure, axes = pyplot.subplots(figsize=(12, 9), layout="constrained")
    axes.scatter(points[drawn, 0], points[drawn, 1], s=2, color="#8da3b0", linewidths=0)
    candidates = np.flatnonzero(vocabulary.words & drawn) if vocabulary.tokenizer is not None else np.flatnonzero(drawn)
    for token_id in _spread(points, candidates):
        axes.annotate(
            vocabulary.text(token_id).strip().replace("$", r"\$"), points[token_id], xytext=(4, 3),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
        axes.plot(*points[token_id], "o", color="#c9600f", markersize=3)
    axes.set_title(f"{title}: {METHODS[projection.method]} of {len(points):,} rows", loc="left")
    axes.set_axis_off()
    output = io.BytesIO()
    figure.savefig(output, format="png", dpi=150)
    pyplot.close(figure)
    return output.getvalue()


def map_parquet(vocabulary: Vocabulary, projection: TableProjection, distortion: Distortion) -> bytes:
    """A file with id, text, x, y and kept, which embedding-atlas opens."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("a Parquet file needs pyarrow: pip install 'inlayer[map]'") from error
    rows = len(projection.points)
    columns = {
        "id": np.arange(rows), "text": [vocabulary.text(token_id) for token_id in range(rows)],
        "x": projection.points[:, 0], "y": projection.points[:, 1], "kept": _kept(rows, distortion),
    }  # fmt: skip
    output = io.BytesIO()
    parquet.write_table(pa.table(columns), output)
    return output.getvalue()


def _all_neighbors(
    table: StoredTable, projection: TableProjection, progress: Progress | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The nearest rows of every row; -1 for a row without a direction."""
    rows = table.num_embeddings
    ids, cosines = np.full((rows, NEIGHBORS), -1, np.int64), np.zeros((rows, NEIGHBORS), np.float32)
    known = np.flatnonzero(np.isfinite(projection.points).all(axis=1))
    for start in range(0, len(known), 1024):
        batch = known[start : start + 1024]
        found, scores = nearest(table, to_float32(table.rows(batch)), NEIGHBORS + 1)
        for token_id, near, score in zip(batch.tolist(), found, scores, strict=True):
            others = np.flatnonzero((near != token_id) & (near >= 0))[:NEIGHBORS]
            ids[token_id, : len(others)], cosines[token_id, : len(others)] = near[others], score[others]
        if progress is not None:
            progress(min(start + 1024, len(known)), len(known))
    return ids, np.minimum(cosines, 1.0)


def _kept(rows: int, distortion: Distortion) -> npt.NDArray[np.float32]:
    """The share of kept neighbors of every row; NaN for rows that were not measured."""
    kept = np.full(rows, np.nan, np.float32)
    kept[distortion.ids] = distortion.kept
    return kept


def _spread(points: npt.NDArray[np.float32], candidates: npt.NDArray[np.int64]) -> list[int]:
    """At most one candidate per cell of a grid, so that labels do not overlap."""
    low, high = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    cells: dict[tuple[int, ...], int] = {}
    for token_id in candidates.tolist():
        cell = (points[token_id] - low) / np.maximum(high - low, 1e-9) * (8, LABELS // 4)
        cells.setdefault(tuple(cell.astype(int).tolist()), token_id)
    return list(cells.values())[: 2 * LABELS]


def _base64(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
