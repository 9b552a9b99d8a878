"""Ragged ids: the token ids of many texts in one array, without a Python list per text.

text -> [ids] -> rows -> (+ positions) -> hidden states -> head
- `flat` is int64: what `F.embedding` and `F.embedding_bag` take as it is, with `offsets` of the same dtype
- text i is `flat[offsets[i] : offsets[i + 1]]`; there are n + 1 offsets, the first 0, the last len(flat)
- numpy only: torch is imported when `padded` makes tensors, so encoding text stays light
- not here: what an id means (text/), whether it is in a table (tables/)
Checked against plain lists in tests/test_ragged.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Ragged"]

IdArray = npt.NDArray[np.int64]


def as_int64(values: object, name: str) -> IdArray:
    """A 1-D int64 array; int64 input is not copied. Anything that is not made of whole numbers is an error."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # numpy: rows of different lengths
        raise ShapeError(f"{name} is nested; it must be one flat row of whole numbers") from error
    if array.ndim == 0:
        raise DtypeError(f"{name} is a {type(values).__name__}, not a row of whole numbers")
    if array.ndim != 1:
        raise ShapeError(f"{name} has {array.ndim} axes; it must be one flat row")
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype in {np.dtype(object), np.dtype(np.uint64)}:
        # Python numbers too large for int64 arrive here: out of every table's range, so name them as ids
        for place, value in enumerate(array.tolist()):
            if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
                raise IdRangeError(f"id {value} at position {place} of {name} does not fit 64 bits")
    if array.dtype.kind not in "iu":
        raise DtypeError(f"{name} has dtype {array.dtype}; ids are whole numbers")
    return array.astype(np.int64, copy=False)


class Ragged:
    """Ids of n texts: `flat` holds them all, `offsets` says where each text begins.

    >>> batch = Ragged.from_lists([[72, 105], [], [33]])
    >>> batch.flat.tolist(), batch.offsets.tolist()
    ([72, 105, 33], [0, 2, 2, 3])
    """

    __slots__ = ("flat", "offsets")

    flat: IdArray
    offsets: IdArray

    def __init__(self, flat: Any, offsets: Any) -> None:
        self.flat = as_int64(flat, "flat")
        self.offsets = as_int64(offsets, "offsets")
        if self.offsets.size == 0:
            raise ShapeError("offsets is empty; n texts need n + 1 offsets, so at least [0]")
        if self.offsets[0] != 0 or self.offsets[-1] != self.flat.size:
            raise InputError(
                f"offsets run from {self.offsets[0]} to {self.offsets[-1]}; "
                f"they must run from 0 to len(flat) = {self.flat.size}"
            )
        falls = np.flatnonzero(np.diff(self.offsets) < 0)
        if falls.size:
            place = int(falls[0])
            raise InputError(
                f"offsets fall from {self.offsets[place]} to {self.offsets[place + 1]} at text {place}; "
                "they never decrease"
            )

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int] | IdArray]) -> Ragged:
        """Gather separate rows; meant for small inputs and tests, since it takes one sequence per text."""
        return cls.from_arrays([as_int64(row, f"row {index}") for index, row in enumerate(rows)])

    @classmethod
    def from_arrays(cls, rows: Sequence[npt.NDArray[np.integer[Any]]]) -> Ragged:
        """Gather the arrays a library made, one of whole numbers per text."""
        flat = np.concatenate(rows) if rows else np.empty(0, np.int64)
        return cls.from_counts(flat, np.fromiter(map(len, rows), np.int64, len(rows)))

    @classmethod
    def from_counts(cls, flat: Any, counts: Any) -> Ragged:
        """From the number of ids in each text instead of the places where they begin."""
        counts = as_int64(counts, "counts")
        offsets = np.zeros(counts.size + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        return cls(flat, offsets)

    @classmethod
    def merge(cls, size: int, parts: Sequence[tuple[IdArray, Ragged]]) -> Ragged:
        """Put parts back in order: text j of a part becomes text `where[j]` of the result.

        Every one of the `size` places is named exactly once over all parts. One scatter per part.
        """
        places = np.concatenate([where for where, _ in parts]) if parts else np.empty(0, np.int64)
        if places.size != size or not np.array_equal(np.sort(places), np.arange(size)):
            raise InputError(f"the parts name {places.size} places; each of 0..{size - 1} must be named exactly once")
        counts = np.zeros(size, np.int64)
        for where, part in parts:
            counts[where] = part.counts
        result = cls.from_counts(np.empty(int(counts.sum()), np.int64), counts)
        for where, part in parts:
            shift = np.repeat(result.offsets[:-1][where] - part.offsets[:-1], part.counts)
            result.flat[shift + np.arange(part.flat.size)] = part.flat
        return result

    def wrapped(self, prefix: Sequence[int], suffix: Sequence[int]) -> Ragged:
        """The same texts, each between `prefix` and `suffix` (begin-of-text, end-of-text)."""
        extra = len(prefix) + len(suffix)
        if extra == 0:
            return self
        offsets = self.offsets + extra * np.arange(len(self) + 1)
        flat = np.empty(self.flat.size + extra * len(self), np.int64)
        is_body = np.ones(flat.size, bool)
        for place, value in enumerate(prefix):
            flat[offsets[:-1] + place] = value
            is_body[offsets[:-1] + place] = False
        for place, value in enumerate(reversed(suffix)):
            flat[offsets[1:] - 1 - place] = value
            is_body[offsets[1:] - 1 - place] = False
        flat[is_body] = self.flat
        return Ragged(flat, offsets)

    @property
    def counts(self) -> IdArray:
        """How many ids each text has."""
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    def __getitem__(self, index: int) -> IdArray:
        """The ids of one text: a view into `flat`, not a copy."""
        if not -len(self) <= index < len(self):
            raise IdRangeError(f"text {index} is outside a batch of {len(self)} texts")
        index %= len(self)
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[IdArray]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.flat, other.flat) and np.array_equal(self.offsets, other.offsets)

    __hash__ = None  # type: ignore[assignment]  # equality by content of arrays that may be written to

    def __repr__(self) -> str:
        return f"Ragged({len(self)} texts, {self.flat.size} ids)"

    def padded(self, pad_id: int, side: str = "right") -> tuple[Tensor, Tensor]:
        """A rectangle of ids (B, T) int64 and its mask (B, T) bool, True where an id is real.

        T is the longest text. `pad_id` fills the rest, after the text or before it (`side`). No loop over texts.
        """
        if side not in {"left", "right"}:
            raise InputError(f'side is {side!r}; padding goes to the "right" or to the "left"')
        if pad_id is None:
            raise DtypeError(
                "pad_id is None: this tokenizer names no padding token; choose an id, for example one past the "
                "vocabulary, in a table with a padding row there"
            )
        if not isinstance(pad_id, (int, np.integer)) or isinstance(pad_id, bool):
            raise DtypeError(f"pad_id is a {type(pad_id).__name__}; it is the id of a row, a whole number")
        if not 0 <= pad_id < 2**63:
            raise IdRangeError(f"pad_id {pad_id} is negative or too large; it is the id of a row, so 0 or more")
        import torch  # heavy, and only tensors need it

        counts = self.counts
        width = int(counts.max(initial=0))
        columns = np.arange(width)
        mask_BT = columns < counts[:, None] if side == "right" else columns >= width - counts[:, None]
        ids_BT = np.full((len(self), width), pad_id, np.int64)
        ids_BT[mask_BT] = self.flat  # both run row by row, so the order agrees
        return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)
