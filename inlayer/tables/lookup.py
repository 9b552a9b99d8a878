"""Lookup: the row of every token id.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- an id outside the table is an error that names the id, its place and the range, and is detected before the gather.
  Only a tracer (torch.compile, export, jit, meta and fake tensors) skips the check, because it has no values
- without gradients, the memory of large results is reused (tables/buffers.py); the values are bit-equal to those of
  F.embedding, which handles all other cases
Tested against F.embedding and against a plain loop in tests/tables/test_lookup.py.
"""

from __future__ import annotations

import math
import os

import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn import functional

from inlayer import sharding
from inlayer.errors import DtypeError, ShapeError
from inlayer.shapes import id_range_error
from inlayer.tables.buffers import BufferPool
from inlayer.tensors import check_ids, has_no_values

__all__ = ["add_up", "check_id_range", "lease", "look_up"]

# From this size on, a lease (about 10 us) is negligible next to the gather (0.4 ms) and numpy requests huge pages;
# below it, malloc reuses freed memory anyway.
POOLED_BYTES = 4 * 2**20

_POOL = BufferPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOL.reset)


def look_up(ids: object, weight: Shaped[Tensor, "V D"], padding_idx: int | None = None) -> Shaped[Tensor, "... D"]:
    """Look up rows of `weight` for ids of any shape and integer dtype: `ids.shape + (D,)`.

    `padding_idx` is the row that gets no gradient.

    >>> look_up(torch.tensor([2, 0]), torch.tensor([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    tensor([[4., 5.],
            [0., 1.]])
    """
    index = check_ids(ids)
    if weight.dim() != 2:
        raise ShapeError(f"the table has {weight.dim()} axes {tuple(weight.shape)}; it must be (V, D), rows by width")
    if index.device != weight.device:
        raise DtypeError(f"input_ids are on {index.device} but the table is on {weight.device}; move one to the other")
    if index.dtype not in (torch.int64, torch.int32):  # the only dtypes the kernels support
        index = index.to(torch.int64)
    check_id_range(index, weight.shape[0])
    if sharding.is_sharded(weight):
        return sharding.look_up(index, weight, padding_idx)
    if weight.is_contiguous() and not has_no_values(index) and _reusable(index.numel() * weight.shape[1], weight):
        rows = _POOL.lease((*index.shape, weight.shape[1]), weight.dtype)
        torch.index_select(weight.detach(), 0, index.reshape(-1), out=rows.view(-1, weight.shape[1]))
        return rows
    return functional.embedding(index, weight, padding_idx)


def lease(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Uninitialized memory for rows that are read from a file; reused if it is large."""
    nbytes = math.prod(shape) * dtype.itemsize
    return _POOL.lease(shape, dtype) if nbytes >= POOLED_BYTES else torch.empty(shape, dtype=dtype)


def add_up(rows: Tensor, added: Tensor) -> Tensor:
    """`rows + added`, where `added` is broadcast to `rows`; the memory of a large sum is reused.

    The result is always a new tensor, because a hook or a cache may hold the rows.
    """
    if added.dtype != rows.dtype or not _reusable(rows.numel(), rows, added):
        return rows + added
    return torch.add(rows, added, out=_POOL.lease(tuple(rows.shape), rows.dtype))


def check_id_range(ids: Tensor, rows: int, name: str = "id") -> None:
    """Raise IdRangeError for the first id outside 0..rows - 1. Negative ids never count from the end."""
    if has_no_values(ids) or ids.numel() == 0:
        return
    low, high = torch.aminmax(ids)
    if int(low) >= 0 and int(high) < rows:
        return
    raise id_range_error(ids.cpu().numpy(), rows, name)


def _reusable(values: int, *sources: Tensor) -> bool:
    """Whether a result can use pooled memory: large, on the CPU, plain tensors, no gradient to record."""
    return (
        all(source.device.type == "cpu" and not has_no_values(source) for source in sources)
        and values * sources[0].dtype.itemsize >= POOLED_BYTES
        and not (torch.is_grad_enabled() and any(source.requires_grad for source in sources))
    )
