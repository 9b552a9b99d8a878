"""One pass over the rows of a table: what each of them is like, and each channel.

[checkpoint] files -> facts -> findings
- rows come in blocks of a few megabytes, whatever the size of the table: memory does not grow with it, only the few
  numbers kept of each row do
- sums are taken in float32, on which float16 and fp8 cannot overflow; a row whose sum is zero or not finite is looked
  at again, exactly, in float64, so that tiny and huge values are not mistaken for zero and infinity
- one thread: a block is too small to be worth dividing, and waiting for a second thread cost ten times the sums on a
  busy machine (30 s against 4 s for Kimi-K2's table)
- equal rows are found by a hash of their bytes and then compared byte by byte
- a sample of ids is scanned by the same code as the whole table
- not here: what is normal (doctor/judge.py)
Checked against a plain loop over the rows in tests/inspection/test_health.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inlayer.tables import StoredTable
from inlayer.tensors import one_thread, to_tensor

__all__ = [
    "BLOCK_VALUES",
    "Progress",
    "RowStatistics",
    "hash_rows",
    "mean_direction",
    "one_thread",
    "scan_rows",
    "share_of_small",
]

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]  # rows done, rows in all

SHORTEST_CONSTANT = 8  # channels: fewer may be equal by chance
MIN_VALUES = 2**12  # of a distribution
BLOCK_VALUES = 2**20  # 4 MB in float32: small enough to stay in a cache from one sum to the next


@dataclass(frozen=True, kw_only=True, eq=False)
class RowStatistics:
    """What was seen of the rows `ids`; every array but the channels' has one entry a row, in that order."""

    ids: Ids
    norms: Numbers  # L2; NaN or infinite where the row is
    has_nan: Flags
    has_inf: Flags
    is_zero: Flags
    is_constant: Flags  # one value in every channel, not zero
    first_equal: Ids  # the first id with the same bytes: its own, unless the row is a copy
    cosines: Numbers | None  # to the direction that was asked for; 0 for a row without a direction
    channel_means: Numbers  # over the rows that are finite
    channel_energy: Numbers  # mean square, over the same

    @property
    def finite(self) -> Flags:
        return ~(self.has_nan | self.has_inf)

    @property
    def is_copy(self) -> Flags:
        """Rows that repeat an earlier one."""
        return np.not_equal(self.first_equal, self.ids)

    @property
    def is_shared(self) -> Flags:
        """Rows that are not zero and have the bytes of another: copies, and those they repeat."""
        return np.isin(self.first_equal, self.first_equal[self.is_copy]) & ~self.is_zero


def scan_rows(
    table: StoredTable,
    ids: Ids | None = None,
    direction: Tensor | None = None,
    progress: Progress | None = None,
    each: Callable[[Ids, Tensor], None] | None = None,
) -> RowStatistics:
    """Read the rows `ids` (sorted; all of them where None) once, and copies a second time.

    `direction` is a unit vector (D,) to compare every row with; `each` is shown every block, with its ids.
    """
    wanted = np.arange(table.num_embeddings) if ids is None else ids
    count, width = len(wanted), table.embedding_dim
    norms, cosines = np.zeros(count), np.zeros(count)
    flags = np.zeros((4, count), np.bool_)  # NaN, infinity, zero, constant
    hashes = np.zeros(count, np.uint64)
    channels = torch.zeros((2, width), dtype=torch.float64)
    step = max(1, BLOCK_VALUES // width)
    with one_thread():
        for start in range(0, count, step):
            place = slice(start, min(start + step, count))
            rows = to_tensor(table.rows(wanted[place]))
            if each is not None:
                each(wanted[place], rows)
            hashes[place] = hash_rows(rows)
            norms[place], cosines[place], flags[:, place] = _measure(rows, direction, channels)
            if progress is not None:
                progress(place.stop, count)
    measured = max(1, int((~(flags[0] | flags[1])).sum()))
    means = channels.numpy() / measured
    return RowStatistics(
        ids=wanted,
        norms=norms,
        has_nan=flags[0],
        has_inf=flags[1],
        is_zero=flags[2],
        is_constant=flags[3],
        first_equal=_first_equal(table, wanted, hashes, flags[2], step),
        cosines=None if direction is None else cosines,
        channel_means=means[0],
        channel_energy=means[1],
    )


def mean_direction(table: StoredTable, ids: Ids) -> Tensor | None:
    """The unit vector (D,) that these rows point to on average; None where they have no direction, or cancel out."""
    total = torch.zeros(table.embedding_dim, dtype=torch.float64)
    step = max(1, BLOCK_VALUES // table.embedding_dim)
    for start in range(0, len(ids), step):
        rows = to_tensor(table.rows(ids[start : start + step])).double()
        norms = torch.linalg.vector_norm(rows, dim=1)
        usable = torch.isfinite(norms) & (norms > 0)
        total += (rows[usable] / norms[usable, None]).sum(0)
    length = torch.linalg.vector_norm(total)
    return None if not length > 0 else (total / length).float()


def share_of_small(table: StoredTable, ids: Ids) -> float | None:
    """Of the values of these rows, the share below a tenth of their row's root mean square: some 8 % of normal ones.

    None where there are too few to tell.
    """
    small = values = 0
    step = max(1, BLOCK_VALUES // table.embedding_dim)
    for start in range(0, len(ids), step):
        rows = to_tensor(table.rows(ids[start : start + step])).double()
        scale = rows.square().mean(1, keepdim=True).sqrt()
        usable = (torch.isfinite(scale) & (scale > 0)).flatten()
        small += int((rows[usable].abs() < 0.1 * scale[usable]).sum())
        values += int(usable.sum()) * table.embedding_dim
    return small / values if values >= MIN_VALUES else None


def hash_rows(rows: Tensor) -> npt.NDArray[np.uint64]:
    """One number a row from its bytes: equal for equal rows, nearly always different for others."""
    raw = rows.contiguous().view(torch.uint8).numpy()
    size = math.gcd(raw.shape[1], 8)
    words = raw.view(f"u{size}")
    # A sum of products with odd random factors, modulo 2**64; the factors are the same for every block.
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    return np.asarray(words @ factors, np.uint64)


def _measure(
    rows: Tensor, direction: Tensor | None, channels: Tensor
) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Norm, cosine and the four flags of each row of a block; the sums of its channels are added to `channels`."""
    values = rows.to(torch.float32, copy=True)
    along = torch.zeros(len(values)) if direction is None else values @ direction
    sums = values.sum(0).double()
    squares = values.square_()
    norms = squares.sum(1).sqrt().double()
    energy = squares.sum(0).double()
    flags = torch.zeros((4, len(rows)), dtype=torch.bool)
    flags[2] = _zero(rows, norms == 0)
    odd = torch.nonzero(~torch.isfinite(norms) | ((norms == 0) & ~flags[2])).flatten()
    if len(odd):
        exact = rows[odd].double()
        flags[0, odd], flags[1, odd] = exact.isnan().any(1), exact.isinf().any(1)
        norms[odd] = torch.linalg.vector_norm(exact, dim=1)
        if not bool(torch.isfinite(energy).all()):  # the sums of the channels again, without the rows that spoil them
            finite = rows[~(flags[0] | flags[1])].double()
            sums, energy = finite.sum(0), finite.square().sum(0)
        if direction is not None:
            along[odd] = (exact @ direction.double()).float()
    flags[3] = _constant(rows) & ~flags[2]
    channels[0] += sums
    channels[1] += energy
    cosines = torch.nan_to_num(along.double() / norms, nan=0.0, posinf=0.0, neginf=0.0)
    return norms.numpy(), cosines.numpy(), flags.numpy()


def _zero(rows: Tensor, suspects: Tensor) -> Tensor:
    """Which of the suspects hold nothing but zeros: every dtype but the widest fits into float32."""
    places = torch.nonzero(suspects).flatten()
    values = rows[places].to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
    zero = torch.zeros(len(rows), dtype=torch.bool)
    zero[places] = (values == 0).all(1)
    return zero


def _constant(rows: Tensor) -> Tensor:
    """Rows that have one value in every channel: a look at the first few rules out nearly all."""
    if rows.shape[1] < SHORTEST_CONSTANT:
        return torch.zeros(len(rows), dtype=torch.bool)
    few = rows[:, :SHORTEST_CONSTANT].float()
    constant = (few == few[:, :1]).all(1)
    some = torch.nonzero(constant).flatten()
    values = rows[some].float()
    constant[some] = (values == values[:, :1]).all(1)
    return constant


def _first_equal(table: StoredTable, ids: Ids, hashes: npt.NDArray[np.uint64], is_zero: Flags, step: int) -> Ids:
    """For every row, the first id whose row has the same bytes. Zero rows need no second look: there may be many."""
    _, first, group, sizes = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    leader_place = first[group.reshape(-1)]
    leader: Ids = ids[leader_place]
    both_zero = is_zero & is_zero[leader_place]
    result: Ids = np.where(both_zero, leader, ids)
    suspects = np.flatnonzero((sizes[group.reshape(-1)] > 1) & (leader != ids) & ~both_zero)
    for start in range(0, len(suspects), step):
        place = suspects[start : start + step]
        ours, theirs = to_tensor(table.rows(ids[place])), to_tensor(table.rows(leader[place]))
        equal = (ours.view(torch.uint8) == theirs.view(torch.uint8)).all(1).numpy()
        result[place[equal]] = leader[place[equal]]
    return result
