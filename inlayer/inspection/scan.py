"""One pass over the rows of a table: statistics of every row and every channel.

source -> Model -> [facts] -> findings -> Report
- rows are read in blocks of a few megabytes, so memory use grows only with the few numbers kept per row
- sums use float32, where float16 and fp8 values cannot overflow; rows whose sum is zero or not finite are measured
  again in float64, so tiny and huge values are not mistaken for zero and infinity
- sums avoid BLAS, whose threads wait for each other on a busy machine; a block is too small to be worth splitting
- equal rows are found by a hash of their bytes, then compared byte by byte
- a sample of ids goes through the same code as the whole table
Tested against a plain loop over the rows in tests/inspection/test_scan.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import CheckpointError
from inlayer.files import printable
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Array, Ids, Mask, Numbers, Vectors
from inlayer.tables import StoredTable
from inlayer.tables.row_index import hash_rows

MAX_ROWS, MAX_CHANNELS = 2**23, 2**20  # the largest published vocabularies have fewer than 2**20 tokens
RUNS, RUN_LENGTH = 32, 32  # runs of rows in a sample; consecutive rows need only one read, even in a remote file
MIN_CONSTANT_WIDTH = 8  # channels; fewer may be equal by chance
MIN_SAMPLE = 2**12  # fewest values that can show a distribution
MAX_SAMPLED = 512  # rows whose value distribution is measured
SCALE_RATIO = 100.0  # maximum ratio between the scales of two tables
BLOCK_VALUES = 2**20  # 4 MB in float32, which stays in the cache between sums


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStatistics:
    """Statistics of the rows `ids`. Every array has one entry per row, in that order, except those for channels."""

    ids: Ids
    norms: Numbers  # L2; NaN or infinite if the row is
    has_nan: Mask
    has_inf: Mask
    is_zero: Mask
    is_constant: Mask  # the same nonzero value in every channel
    first_equal: Ids  # the first id with the same bytes, which is the row's own id unless it repeats another
    cosines: Numbers | None  # similarity to the given direction; 0 for zero rows
    differing: tuple[int, ...]  # the ids whose rows differ from the rows of `other`, if it was given
    channel_means: Numbers  # over finite rows
    channel_energy: Numbers  # mean square over finite rows

    @property
    def finite(self) -> Mask:
        return ~(self.has_nan | self.has_inf)

    @property
    def usable(self) -> Mask:
        """Rows that are finite and not zero."""
        return self.finite & ~self.is_zero

    @property
    def width(self) -> int:
        return len(self.channel_means)

    @property
    def norm_median(self) -> float | None:
        norms = self.norms[self.usable]
        return float(np.median(norms)) if len(norms) else None

    @property
    def rms(self) -> float | None:
        """Root mean square of the values of a typical row."""
        return None if self.norm_median is None else self.norm_median / math.sqrt(self.width)

    @property
    def is_duplicate(self) -> Mask:
        """Rows that repeat an earlier row."""
        return np.not_equal(self.first_equal, self.ids)

    @property
    def is_shared(self) -> Mask:
        """Usable rows with the same bytes as another row, earlier or later."""
        return np.isin(self.first_equal, self.first_equal[self.is_duplicate]) & self.usable


def check_scannable(table: StoredTable, *, is_sampled: bool) -> int:
    """Return the number of rows, or raise an error if their statistics would not fit in memory."""
    rows, width = table.num_embeddings, table.embedding_dim
    if width > MAX_CHANNELS or (rows > MAX_ROWS and not is_sampled):
        raise CheckpointError(
            f"the table {printable(table.name[:80])} is {rows:,} x {width:,}; inspect supports up to {MAX_ROWS:,} x "
            f"{MAX_CHANNELS:,} (--quick samples the rows of a longer one)"
        )
    return rows


def is_out_of_scale(rms: float, expected: float, min_rms: float) -> bool:
    """Return whether values are far from the expected scale and outside the usual range, `min_rms` to 1."""
    return rms > max(1.0, SCALE_RATIO * expected) or rms < min(min_rms, expected / SCALE_RATIO)


def sample_ids(rows: int, others: Iterable[int] = ()) -> Ids:
    """Choose runs of consecutive rows, evenly spaced over the table, plus the ids in `others` that are rows."""
    if rows <= RUNS * RUN_LENGTH:
        return np.arange(rows)
    starts = np.linspace(0, rows - RUN_LENGTH, RUNS).astype(np.int64)
    others = [row for row in others if row < rows]
    return np.union1d((starts[:, None] + np.arange(RUN_LENGTH)).reshape(-1), np.array(others, np.int64))


def spread(ids: Ids, max_count: int) -> Ids:
    """Choose at most `max_count` of the ids, evenly spaced."""
    return ids[:: max(1, -(-len(ids) // max_count))]


def scan_rows(
    table: StoredTable,
    ids: Ids | None = None,
    direction: Vectors | None = None,
    progress: Progress = no_progress,
    other: StoredTable | None = None,
) -> RowStatistics:
    """Read the rows `ids` (sorted; None for all) once, and possible duplicates a second time.

    `direction` is a unit vector (D,) to compare every row with; `other` is a table with rows for the same ids. If
    `progress` stops the scan, the result covers the rows read so far.
    """
    row_ids = np.arange(table.num_embeddings) if ids is None else ids
    measured, differing = list[dict[str, Any]](), list[int]()
    channels = np.zeros((2, table.embedding_dim))
    for block, rows in _blocks(table, row_ids):
        if other is not None:
            pair = rows, other.rows(row_ids[block])
            same_type = pair[0].dtype == pair[1].dtype  # compared bit for bit, or by value if dtypes differ
            left, right = (x.view(np.uint8) if same_type else x.astype(np.float64) for x in pair)
            differing += row_ids[block][(left != right).any(1)].tolist()
        with np.errstate(all="ignore"):  # overflow and NaN are expected
            measured.append(_measure(rows, direction, channels) | {"hashes": hash_rows(rows)})
        if progress(block.stop, len(row_ids)) is False:
            row_ids = row_ids[: block.stop]
            break
    columns = {name: np.concatenate([part[name] for part in measured]) for name in measured[0]}
    hashes, cosines = columns.pop("hashes"), columns.pop("cosines")
    channels /= max(1, int((~(columns["has_nan"] | columns["has_inf"])).sum()))
    return RowStatistics(
        ids=row_ids,
        first_equal=_first_equal(table, row_ids, hashes),
        cosines=None if direction is None else cosines,
        differing=tuple(differing),
        channel_means=channels[0],
        channel_energy=channels[1],
        **columns,
    )


def mean_direction(table: StoredTable, ids: Ids) -> Vectors | None:
    """Return the mean direction (D,) of these rows as a unit vector; None if they have none, or cancel out."""
    total = sum((units.sum(0) for units in _unit_vectors(table, ids)), np.zeros(table.embedding_dim))
    norm = np.sqrt(np.square(total).sum())
    return (total / norm).astype(np.float32) if norm > 0 else None


def near_zero_share(table: StoredTable, ids: Ids) -> float | None:
    """Return the share of values below a tenth of their row's root mean square: about 8% for a normal distribution.

    Only some of these rows are read. Returns None if there are too few values.
    """
    limit = 0.1 / math.sqrt(table.embedding_dim)
    sampled = _unit_vectors(table, spread(ids, MAX_SAMPLED))
    near_zero = np.array([row for units in sampled for row in np.abs(units) < limit])
    return float(near_zero.mean()) if near_zero.size >= MIN_SAMPLE else None


def _blocks(table: StoredTable, ids: Ids) -> Iterator[tuple[slice, Array]]:
    """Yield the rows of `ids` in blocks, each with its slice of `ids`."""
    step = max(1, BLOCK_VALUES // table.embedding_dim)
    for start in range(0, len(ids), step):
        block = slice(start, min(start + step, len(ids)))
        yield block, table.rows(ids[block])


def _unit_vectors(table: StoredTable, ids: Ids) -> Iterator[Numbers]:
    """Yield the rows of `ids` in blocks, normalized; zero and non-finite rows are excluded."""
    for _, rows in _blocks(table, ids):
        with np.errstate(all="ignore"):  # some platforms also warn when NaN is widened
            values = rows.astype(np.float64)
            norms = np.sqrt(np.square(values).sum(1))
        usable = np.isfinite(norms) & (norms > 0)
        yield values[usable] / norms[usable, None]


def _measure(rows: Array, direction: Vectors | None, channels: Numbers) -> dict[str, Array]:
    """Return norm, cosine, and flags of each row of a block, and add the sums of its channels to `channels`."""
    values = rows.astype(np.float32)  # a copy, which is squared in place below
    dots = np.zeros(len(values)) if direction is None else np.einsum("ij,j->i", values, direction).astype(np.float64)
    is_constant = (values.min(1) == values.max(1)) & (values.shape[1] >= MIN_CONSTANT_WIDTH)
    sums = values.sum(0, dtype=np.float64)
    squares = np.square(values, out=values)
    norms, energy = np.sqrt(squares.sum(1)).astype(np.float64), squares.sum(0, dtype=np.float64)
    has_nan, has_inf, is_zero = np.zeros((3, len(rows)), np.bool_)
    unclear = np.flatnonzero(~np.isfinite(norms) | (norms == 0))
    if len(unclear):
        exact = rows[unclear].astype(np.float64)
        has_nan[unclear], has_inf[unclear] = np.isnan(exact).any(1), np.isinf(exact).any(1)
        is_zero[unclear] = ~exact.any(1)
        norms[unclear] = _exact_norms(exact)
        if not np.isfinite(energy).all():  # sum the channels again, without non-finite rows
            finite = rows[~(has_nan | has_inf)].astype(np.float64)
            sums, energy = finite.sum(0), np.square(finite).sum(0)
        if direction is not None:
            dots[unclear] = np.einsum("ij,j->i", exact, direction.astype(np.float64))
    channels[0] += sums
    channels[1] += energy
    return {
        "norms": norms, "cosines": np.nan_to_num(dots / norms, nan=0.0, posinf=0.0, neginf=0.0),
        "has_nan": has_nan, "has_inf": has_inf, "is_zero": is_zero, "is_constant": is_constant & ~is_zero,
    }  # fmt: skip


def _exact_norms(values: Numbers) -> Numbers:
    """Compute norms whose squares may not fit in float64, by first dividing each row by its largest value."""
    peak = np.abs(values).max(1)
    peak = np.where(np.isfinite(peak) & (peak > 0), peak, 1.0)
    return np.asarray(peak * np.sqrt(np.square(values / peak[:, None]).sum(1)))


def _first_equal(table: StoredTable, ids: Ids, hashes: npt.NDArray[np.uint64]) -> Ids:
    """Return, for every row, the first id with the same bytes: rows with equal hashes are read again and compared."""
    _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
    leader = first[group.reshape(-1)]  # index of the first row with the same hash
    candidates = np.flatnonzero(leader != np.arange(len(ids)))
    result: Ids = ids.copy()
    for block, rows in _blocks(table, ids[candidates]):
        part = candidates[block]
        equal = (rows.view(np.uint8) == table.rows(ids[leader[part]]).view(np.uint8)).all(1)
        result[part[equal]] = ids[leader[part[equal]]]
    return result
