"""Ragged: the token ids of many texts in one array, without a Python list per text.

text -> [ids] -> rows -> (+ positions) -> hidden states -> head
- `flat` is int64, as `F.embedding` and `F.embedding_bag` need it, and `offsets` has the same dtype
- text i is `flat[offsets[i] : offsets[i + 1]]`; there are n + 1 offsets, from 0 to len(flat)
- numpy only: torch is imported when `padded` creates tensors
- see also: what an id means (tokenizers/), whether an id is in a table (tables/)
Tested against plain lists in tests/test_ragged.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from inlayer.checks import as_int64, is_integer
from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError, needs_torch, type_name
from inlayer.shapes import Ids

if TYPE_CHECKING:
    from torch import Tensor


def flat_int64(values: object, name: str) -> Ids:
    """Convert integers to a 1-D int64 array; an int64 array is not copied."""
    array = as_int64(values, name)
    if array.ndim != 1:
        raise ShapeError(f"{name} has {array.ndim} axes; it must be a flat sequence of integers")
    return array


class Ragged:
    """Token ids of n texts: `flat` holds all ids, and `offsets` the start of each text.

    Args:
        flat: The ids of all texts, concatenated.
        offsets: n + 1 offsets into `flat`, from 0 to len(flat).

    Raises:
        DtypeError: If an array does not contain integers.
        InputError: If the offsets decrease, or do not go from 0 to len(flat).
        ShapeError: If an array does not have one axis.

    Example:
        >>> batch = Ragged.from_lists([[72, 105], [], [33]])
        >>> batch.flat.tolist(), batch.offsets.tolist()
        ([72, 105, 33], [0, 2, 2, 3])
    """

    __slots__ = ("flat", "offsets")

    flat: Ids
    offsets: Ids

    def __init__(self, flat: Any, offsets: Any) -> None:
        self.flat = flat_int64(flat, "flat")
        self.offsets = flat_int64(offsets, "offsets")
        if self.offsets.size == 0:
            raise ShapeError("offsets is empty; n texts need n + 1 offsets, so at least [0]")
        first, last = self.offsets[0], self.offsets[-1]
        if (first, last) != (0, self.flat.size):
            raise InputError(f"offsets go from {first} to {last}; they must go from 0 to len(flat) = {self.flat.size}")
        decreases = np.flatnonzero(self.counts < 0)
        if decreases.size:
            text = decreases[0]
            before, after = self.offsets[text : text + 2]
            raise InputError(f"offsets decrease from {before} to {after} at text {text}; they must not decrease")

    @classmethod
    def from_lists(cls, rows: Iterable[Sequence[int] | Ids]) -> Ragged:
        """Combine one sequence of ids per text; for small inputs.

        Args:
            rows: The ids of each text.

        Returns:
            The ids in one array.

        Raises:
            InlayerError: If the ids of a text are not a flat sequence of integers.

        Example:
            >>> Ragged.from_lists([[72, 105], [33]]).counts.tolist()
            [2, 1]
        """
        return ragged_from_arrays([flat_int64(row, f"row {index}") for index, row in enumerate(rows)])

    @property
    def counts(self) -> Ids:
        """The number of ids of each text.

        Example:
            >>> Ragged.from_lists([[72, 105], [], [33]]).counts.tolist()
            [2, 0, 1]
        """
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return int(self.offsets.size) - 1

    def __getitem__(self, index: int) -> Ids:
        """Return the ids of one text, as a view of `flat`."""
        if not -len(self) <= index < len(self):
            raise IdRangeError(f"text {index} is outside a batch of {len(self)} texts")
        index %= len(self)
        return self.flat[self.offsets[index] : self.offsets[index + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[index] for index in range(len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        return np.array_equal(self.flat, other.flat) and np.array_equal(self.offsets, other.offsets)

    __hash__ = None  # type: ignore[assignment]  # equality depends on arrays that can change

    def __repr__(self) -> str:
        return f"Ragged({len(self)} texts, {self.flat.size} ids)"

    def padded(self, pad_id: int, side: Literal["right", "left"] = "right") -> tuple[Tensor, Tensor]:
        """Pad all texts to the length of the longest one.

        Args:
            pad_id: The id of the padding token.
            side: "right" or "left": where the padding goes.

        Returns:
            Ids (B, T) int64, and a mask (B, T) that is True for real ids; both are torch tensors.

        Raises:
            DtypeError: If the padding id is not an integer.
            IdRangeError: If it is negative.
            InputError: If the side is unknown.

        Example:
            >>> ids, mask = Ragged.from_lists([[72, 105], [33]]).padded(0)
            >>> ids.tolist(), mask.tolist()
            ([[72, 105], [33, 0]], [[True, True], [True, False]])
        """
        if side not in {"left", "right"}:
            raise InputError(f'side is {side!r}; it must be "right" or "left"')
        if not is_integer(pad_id):
            raise DtypeError(
                f"pad_id is {type_name(pad_id)}; it must be the id of a row. If the tokenizer has no padding token, "
                "choose an id, for example one after the vocabulary, and use a table with a padding row there"
            )
        if not 0 <= pad_id < 2**63:
            raise IdRangeError(f"pad_id {pad_id} is negative or too large; it must be the id of a row")
        with needs_torch("Ragged.padded"):
            import torch

        counts = self.counts
        width = int(counts.max(initial=0))
        columns = np.arange(width)
        mask_BT = columns < counts[:, None] if side == "right" else columns >= width - counts[:, None]
        ids_BT = np.full((len(self), width), pad_id, np.int64)
        ids_BT[mask_BT] = self.flat  # both are in row order
        return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)


def ragged_from_arrays(rows: Sequence[npt.NDArray[np.integer[Any]]]) -> Ragged:
    """Combine one integer array per text."""
    flat = np.concatenate(rows) if rows else np.empty(0, np.int64)
    return ragged_from_counts(flat, np.fromiter(map(len, rows), np.int64, len(rows)))


def ragged_from_counts(flat: Any, counts: Ids) -> Ragged:
    """Build from the number of ids per text instead of offsets."""
    offsets = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return Ragged(flat, offsets)


def concatenate_batches(parts: Sequence[Ragged]) -> Ragged:
    """Join batches: the texts of the first, then those of the second, and so on."""
    if len(parts) == 1:
        return parts[0]
    empty = np.empty(0, np.int64)
    flat, counts = [part.flat for part in parts], [part.counts for part in parts]
    return ragged_from_counts(np.concatenate([empty, *flat]), np.concatenate([empty, *counts]))


def select_texts(batch: Ragged, order: Ids) -> Ragged:
    """Return the texts of a batch with these indices, in this order."""
    counts = batch.counts[order]
    shifts = np.repeat(batch.offsets[order] - (np.cumsum(counts) - counts), counts)
    return ragged_from_counts(batch.flat[np.arange(shifts.size) + shifts], counts)


def with_special_tokens(batch: Ragged, prefix: Sequence[int], suffix: Sequence[int]) -> Ragged:
    """Add the same ids around each text, such as begin-of-text and end-of-text."""
    if not prefix and not suffix:
        return batch
    extra = [*prefix, *suffix]
    starts, ends = batch.offsets[:-1], batch.offsets[1:]
    places = np.stack([*[starts] * len(prefix), *[ends] * len(suffix)], axis=1)  # where to insert, per text
    flat = np.insert(batch.flat, places.reshape(-1), np.tile(extra, len(batch)))
    return Ragged(flat, batch.offsets + len(extra) * np.arange(len(batch) + 1))


def slice_texts(batch: Ragged, start: int, stop: int) -> Ragged:
    """Return the texts from `start` up to but not including `stop`; `flat` is a view of the batch's."""
    offsets = batch.offsets[start : stop + 1]
    return Ragged(batch.flat[offsets[0] : offsets[-1]], offsets - offsets[0])
