"""Maps of a table: two coordinates for every row, by PCA or t-SNE.

table -> [coordinates (V, 2)] -> map
- PCA needs only numpy and takes seconds; t-SNE (openTSNE, extra `map`) starts from it, takes minutes, and can be
  interrupted with Ctrl-C
- rows are centered; rows of zeros and rows with NaN or infinity get NaN coordinates
- up to EXACT_WIDTH channels the covariance is computed exactly. Wider tables use subspace iteration, which reads the
  table once per iteration and stops when the plane no longer changes
- extremely large or small tables are scaled by a power of two, so nothing overflows
- the largest loading of an axis is positive, so the same table always gives the same picture
- results are cached by the content of the table; the t-SNE of the bundled sample is part of the package
- faithfulness is measured exactly for each row of a sample. Neighborhood preservation is the share of a row's K nearest
  rows (by cosine) that are also among its K nearest points. Trustworthiness (Venna and Kaski, 2001) is 1 if every
  neighbor on the map is a true one; a false neighbor costs more the lower its true rank
Tested against numpy's SVD and scikit-learn's trustworthiness in tests/geometry/test_projection.py.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from inlayer.errors import InputError, MissingExtraError
from inlayer.files import quote, write_output
from inlayer.geometry.nearest import cosine_blocks, float32_blocks, normalized, square_norms, to_float32
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Array, Ids, Mask, Numbers, Vectors
from inlayer.tables.stored_table import StoredTable
from inlayer.threads import in_thread

Method = Literal["best", "pca", "tsne"]
BUNDLED = Path(__file__).parent.parent / "samples" / "default"
EXACT_WIDTH = 1024
TSNE_WIDTH = 50  # number of principal components that t-SNE starts from
TSNE_STEPS, REPORT_EVERY = 750, 10  # openTSNE's steps, and steps between progress reports
PERPLEXITY = 30.0
BLOCK_VALUES = 2**21
USUAL_NORMS = 2.0**-30, 2.0**30  # if the largest norm is in this range, sums of products fit in float32
OVERSAMPLING, MAX_PASSES, TOLERANCE = 14, 12, 1e-6  # subspace iteration: extra directions, passes, change of the plane
ROUNDING = 2.0**-22  # cosines of equal rows can differ by this much; such ties do not count as errors of a map
BATCH_SCORES = 2**22  # cosines in memory at a time: 16 MB, unless the table has more rows
Points = npt.NDArray[np.float32]
Blocks = Callable[[Progress], Iterator[tuple[int, Points]]]


class Distortion(NamedTuple):
    """The faithfulness of a map."""

    k: int  # neighbors considered per row
    ids: Ids  # the rows whose neighborhoods were measured, including those in the averages
    neighborhood_preservation: Vectors  # (n,) share of the true neighbors that are also neighbors on the map
    trustworthiness: float  # 1 if no neighbor on the map is a false one
    mean_preservation: float
    measured_rows: int  # rows used for both averages


class TableProjection(NamedTuple):
    """Two coordinates for every row of a table, as returned by `Model.project`.

    Attributes:
        method: "pca" or "tsne".
        points: The coordinates (V, 2) in float32; NaN for rows that are zero or not finite. They are divided by a power
            of two if the largest norm is far outside the usual range.
        explained_variance_ratio: Share of the variance that the points preserve (PCA only).
        complete: False if t-SNE was interrupted.
        axes: The matrix (D, 2) in float32 that maps centered rows to points (PCA only).
        distortion: How faithful the map is, if this was measured.

    Example:
        >>> projection = inlayer.load("default").project()
        >>> projection.method, projection.points.shape, len(projection.omitted_ids)
        ('pca', (6144, 2), 1)
    """

    method: str
    points: Points
    explained_variance_ratio: float | None = None
    complete: bool = True
    axes: Points | None = None
    distortion: Distortion | None = None

    @property
    def omitted_ids(self) -> Ids:
        """Zero and non-finite rows, which have no coordinates."""
        return np.flatnonzero(np.isnan(self.points).any(axis=1))


def project(
    table: StoredTable,
    method: Method = "pca",
    *,
    cache: Path | None = None,
    fingerprint: str | None = None,
    progress: Progress = no_progress,
) -> TableProjection:
    """Map every row of a table; `cache` is a folder for results, named by the table's `fingerprint`.

    "best" is t-SNE if it has been computed before, otherwise PCA.
    """
    if method not in get_args(Method):
        raise InputError(f"method is {quote(method)}; it must be one of {', '.join(get_args(Method))}")
    fingerprint = fingerprint or table_fingerprint(table)
    for name in ("tsne", "pca") if method == "best" else (method,):
        if (projection := load_cached(fingerprint, name, cache)) is not None:
            return projection
    projection = _tsne(table, progress) if method == "tsne" else pca(table, progress=progress)
    if cache is not None and projection.complete:
        found = (projection.explained_variance_ratio, projection.axes)
        explained, axes = (np.nan if value is None else value for value in found)
        output = io.BytesIO()
        np.savez(output, points=projection.points, explained=explained, axes=axes)
        with suppress(InputError, OSError):  # the map is returned even if the cache cannot be written
            cache.mkdir(parents=True, exist_ok=True)
            write_output(cache / f"{fingerprint}-{projection.method}.npz", output.getvalue())  # never a partial file
    return projection


def load_cached(fingerprint: str, method: str, cache: Path | None) -> TableProjection | None:
    """Return a projection computed before, found by its table's fingerprint in the cache or in the package."""
    for folder in (cache, BUNDLED):
        file = None if folder is None else folder / f"{fingerprint}-{method}.npz"
        if file is None or not file.is_file():
            continue
        try:
            with file.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
                projection = TableProjection(method, stored["points"])
                if method == "pca":
                    explained = None if np.isnan(stored["explained"]) else float(stored["explained"])
                    projection = projection._replace(explained_variance_ratio=explained, axes=stored["axes"])
                if "kept" in stored:
                    kept = stored["kept"].astype(np.float32)
                    k, trust, mean = int(stored["k"]), float(stored["trustworthiness"]), float(kept.mean())
                    distortion = Distortion(k, stored["ids"], kept, trust, mean, len(kept))
                    projection = projection._replace(distortion=distortion)
                return projection
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            if folder is cache:
                file.unlink(missing_ok=True)  # the file is damaged, so compute the map again
    return None


def pca(table: StoredTable, count: int = 2, progress: Progress = no_progress) -> TableProjection:
    """Project every row onto the `count` directions with the largest variance."""
    width = table.embedding_dim
    mean_D, valid_V, total, scale = _statistics(table)
    if int(valid_V.sum()) < 3:
        raise InputError(f"a map needs at least 3 rows that are nonzero and finite; the table has {int(valid_V.sum())}")

    def blocks(show: Progress) -> Iterator[tuple[int, Points]]:
        """Yield blocks of rows minus their mean, scaled; zero and non-finite rows become zero."""
        for start, rows in _blocks(table):
            with np.errstate(all="ignore"):
                centered = (rows if scale == 1 else rows * np.float32(scale)) - (mean_D * scale).astype(np.float32)
            centered[~valid_V[start : start + len(rows)]] = 0
            yield start, centered
            show(start + len(rows), table.num_embeddings)

    if width <= count:
        axes_DA = np.eye(width, count)
    elif width <= EXACT_WIDTH:
        covariance = np.zeros((width, width))
        for _, rows in blocks(progress):
            covariance += rows.T @ rows
        axes_DA = np.linalg.eigh(covariance)[1][:, ::-1][:, :count]
    else:
        axes_DA = _subspace(blocks, width, count, progress)
    largest = axes_DA[np.abs(axes_DA).argmax(axis=0), np.arange(count)]
    axes_DA = axes_DA * np.where(largest < 0, -1.0, 1.0)
    points_VA = np.full((table.num_embeddings, count), np.nan, np.float32)
    for start, rows in blocks(no_progress):
        points_VA[start : start + len(rows)] = rows @ axes_DA.astype(np.float32)
    points_VA[~valid_V] = np.nan
    spread = float(np.square(points_VA[valid_V], dtype=np.float64).sum())
    explained = min(spread / total, 1.0) if total > 0 else None
    return TableProjection("pca", points_VA, explained, axes=(axes_DA * scale).astype(np.float32))


def _tsne(table: StoredTable, progress: Progress) -> TableProjection:
    """Compute t-SNE of the leading principal components."""
    start = pca(table, min(TSNE_WIDTH, table.embedding_dim)).points
    valid_V = np.isfinite(start).all(axis=1)
    points = np.full((table.num_embeddings, 2), np.nan, np.float32)
    rows = start[valid_V]
    if rows.shape[1] < 2 or not rows.any():
        raise InputError('t-SNE needs rows that differ in at least two channels; use method="pca" instead')
    points[valid_V], complete = _fit_tsne(rows, progress)
    if np.isnan(points[valid_V]).any():
        raise InputError('t-SNE found no layout for these rows; use method="pca" instead')
    return TableProjection("tsne", points, complete=complete)


def _fit_tsne(rows: Vectors, progress: Progress) -> tuple[Array, bool]:
    """Return points (n, 2) for rows, and whether they are complete: Ctrl-C returns the points computed so far.

    Before the first step, there are no points, and Ctrl-C raises KeyboardInterrupt.
    """
    try:
        from openTSNE import TSNE
    except ImportError as error:
        raise missing_tsne_error() from error
    latest, calls, interrupted = rows[:, :2], 0, False

    def report(step: int, error: float, embedding: Any) -> bool:  # noqa: ARG001
        nonlocal latest, calls, interrupted
        latest, calls = np.array(embedding), calls + 1
        try:
            if not interrupted:
                progress(min(calls * REPORT_EVERY, TSNE_STEPS), TSNE_STEPS)
        except KeyboardInterrupt:
            interrupted = True
        return interrupted  # True ends the computation

    perplexity = min(PERPLEXITY, (len(rows) - 1) / 3)  # openTSNE warns about a larger one
    model = TSNE(
        perplexity=perplexity, metric="cosine", random_state=0, n_jobs=-1,
        callbacks=report, callbacks_every_iters=REPORT_EVERY,
    )  # fmt: skip
    # Finding the neighbors in a large table takes minutes in compiled code, which does not react to Ctrl-C.
    try:
        latest = np.array(in_thread(model.fit, rows, "inlayer-tsne").result())
    except KeyboardInterrupt:
        if not calls:
            raise
        interrupted = True
    return latest, not interrupted


def missing_tsne_error() -> MissingExtraError:
    """Return the error to raise if openTSNE is not installed."""
    return MissingExtraError("t-SNE needs openTSNE: pip install 'inlayer[map]'; PCA needs no extra package")


def cache_folder() -> Path:
    """Return the folder that caches the user's maps."""
    import platformdirs

    return platformdirs.user_cache_path("inlayer") / "maps"


def table_fingerprint(table: StoredTable) -> str:
    """Hash a table's stored bytes."""
    digest = hashlib.blake2b(f"{table.shape} {table.stored_dtype}".encode(), digest_size=16)
    for start in range(0, table.num_embeddings, 4096):
        rows = table.read_stored(np.arange(start, min(start + 4096, table.num_embeddings)))
        digest.update(np.ascontiguousarray(rows).view(np.uint8).data)
    return digest.hexdigest()


def _statistics(table: StoredTable) -> tuple[Numbers, Mask, float, float]:
    """Return the valid rows' mean, a mask of them, their scaled variance times their number, and the scale."""
    sum_D, squares, largest = np.zeros(table.embedding_dim), 0.0, 0.0
    valid_V = np.zeros(table.num_embeddings, np.bool_)
    for start, rows in _blocks(table):
        squares_N = square_norms(rows)
        valid = np.isfinite(squares_N) & (squares_N > 0)
        valid_V[start : start + len(rows)] = valid
        sum_D += rows[valid].sum(axis=0, dtype=np.float64)
        squares += float(squares_N[valid].sum())
        largest = max(largest, float(squares_N[valid].max(initial=0)) ** 0.5)
    mean_D = sum_D / max(int(valid_V.sum()), 1)
    low, high = USUAL_NORMS
    scale = 1.0 if low < largest < high else 2.0 ** min(126, -math.frexp(largest)[1])  # a normal number in float32
    return mean_D, valid_V, (squares - int(valid_V.sum()) * float(mean_D @ mean_D)) * scale**2, scale


def _subspace(blocks: Blocks, width: int, count: int, progress: Progress) -> Numbers:
    """Return the leading axes by subspace iteration."""
    basis_DS = np.linalg.qr(np.random.default_rng(0).standard_normal((width, count + OVERSAMPLING)))[0]
    leading = np.zeros((width, count))
    for _ in range(MAX_PASSES):
        product_DS, narrow = np.zeros_like(basis_DS), basis_DS.astype(np.float32)
        for _, rows in blocks(progress):
            product_DS += rows.T @ (rows @ narrow)
        basis_DS, triangle = np.linalg.qr(product_DS)
        basis_DS = basis_DS @ np.linalg.svd(triangle)[0]
        before, leading = leading, basis_DS[:, :count]
        if count - np.square(before.T @ leading).sum() < TOLERANCE:
            break
    return leading


def _blocks(table: StoredTable) -> Iterator[tuple[int, Vectors]]:
    return float32_blocks(table, np.arange(table.num_embeddings), max(1, BLOCK_VALUES // table.embedding_dim))


def measure_distortion(
    table: StoredTable, points: Points, *, k: int = 10, sample: int = 1000, progress: Progress = no_progress
) -> Distortion:
    """Compare the neighborhoods of a sample of rows with those on the map."""
    usable = np.isfinite(points).all(axis=1)
    known = np.flatnonzero(usable)
    k = min(k, max(1, (len(known) - 1) // 2))
    ids = known[np.linspace(0, len(known) - 1, min(sample, len(known))).astype(np.int64)]
    preservations, penalties = np.zeros(len(ids), np.float32), 0.0
    batch = max(32, BATCH_SCORES // table.num_embeddings)
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
    return Distortion(k, ids, preservations, 1.0 - scale * penalties, float(preservations.mean()), len(ids))
