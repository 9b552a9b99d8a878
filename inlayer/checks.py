"""Base module: checks of ids, sizes, seeds, and other plain numbers, and the error for an id outside its table.

Only numpy; checks of torch tensors are in tensors.py. Tested in tests/test_checks.py and tests/tables/.
"""

from __future__ import annotations

import math
from typing import Any, TypeGuard

import numpy as np

from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError, type_name
from inlayer.shapes import Array, Ids


def as_int64(values: object, name: str) -> Ids:
    """Convert integers to an int64 array of the same shape; an int64 array is not copied."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ShapeError(f"{name} has rows of different lengths; it must be a regular array of integers") from error
    except (TypeError, RuntimeError) as error:  # a tensor that is sparse, on a GPU, or part of a graph
        raise DtypeError(f"{name} cannot be converted to a numpy array: {str(error).splitlines()[0][:120]}") from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype in {np.dtype(object), np.dtype(np.uint64)}:
        # Python integers too large for int64 end up here. They are outside every table, so report them as ids.
        for index, value in enumerate(array.reshape(-1).tolist()):
            if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
                which = str(value) if value.bit_length() <= 128 else f"of {value.bit_length():,} bits"
                raise IdRangeError(f"id {which} at position {index} of {name} does not fit in 64 bits")
    if array.dtype.kind not in "iu":
        raise DtypeError(f"{name} has dtype {array.dtype}; ids must be integers")
    return array.astype(np.int64, copy=False)


def check_id_array(ids: object, rows: int) -> Ids:
    """Convert ids of any shape to int64 and check that each is a row of the table."""
    array = as_int64(ids, "ids")
    if array.size and not (array.min() >= 0 and array.max() < rows):
        raise id_range_error(array, rows)
    return array


def id_range_error(ids: Array, rows: int, name: str = "id") -> IdRangeError:
    """Return the error for the first id outside 0..rows - 1. Negative ids never count from the end."""
    outside = np.argwhere((ids < 0) | (ids >= rows))
    index = outside[0].tolist()
    bad = int(ids[tuple(index)])
    cause = (
        "; a negative id is often an ignored target (-100) or a missing token"
        if bad < 0
        else "; was the text encoded with another model's tokenizer, or were tokens added without resizing the table?"
    )
    at = f" at {index}" if index else ""  # a single id has no index
    others = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
    return IdRangeError(f"{name} {bad}{at}{others} is outside 0..{rows - 1}{cause if name == 'id' else ''}")


def check_type(value: object, kind: type, name: str, hint: str = "") -> None:
    """Check that an argument is an instance of a class."""
    if not isinstance(value, kind):
        raise DtypeError(f"{name} is {type_name(value)}; it must be a {kind.__name__}{hint}")


def check_seed(seed: object) -> int:
    """Check that a seed is accepted by torch's generators."""
    if not is_integer(seed) or not 0 <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; it must be an integer in 0..{2**63 - 1}")
    return int(seed)


def check_size(size: object, name: str) -> int:
    """Check that a size is an integer of at least 1; a numpy integer becomes an int."""
    if not is_integer(size):
        raise DtypeError(f"{name} is {size!r}; it must be an integer of at least 1")
    if size < 1:
        raise InputError(f"{name} is {size!r}; it must be an integer of at least 1")
    return int(size)


def check_padding(padding_idx: object, rows: int) -> int | None:
    """Return the index of the padding row, counted from the start of the table."""
    if padding_idx is None:
        return None
    if not is_integer(padding_idx) or not -rows <= padding_idx < rows:
        raise InputError(f"padding_idx {padding_idx!r} is outside {-rows}..{rows - 1}, the rows of the table")
    return int(padding_idx) % rows


def check_std(init_std: float) -> float:
    """Check a standard deviation for random initialization."""
    if not (is_finite(init_std) and init_std >= 0):
        raise InputError(f"init_std is {init_std!r}; a standard deviation must be finite and not negative")
    return init_std


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether the value is a Python or numpy integer, and not a bool."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Return whether the value is a number, and neither NaN nor infinite."""
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False
