"""Reused output memory for large lookups.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- why: a large lookup spends most of its time on page faults in new memory, not on the gather (docs/decisions.md)
- a lease is a tensor over a *new numpy view object* of a buffer. The tensor's storage owns the view object, so
  every alias (slice, `.numpy()`, a tensor saved for backward) keeps it alive; its finalizer returns the buffer
- numpy allocates the buffers: it requests huge pages on Linux, so even the first use has fewer page faults
Tested in tests/tables/test_buffers.py; broken pools show that its checks can fail.
"""

from __future__ import annotations

import math
import weakref

import numpy as np
import torch
from torch import Tensor

from inlayer.shapes import Bytes

IDLE_BYTES = 256 * 2**20
ALIGNMENT = 64  # a cache line, as in torch's allocator


def round_up(nbytes: int) -> int:
    """Round up to an eighth of a power of two: similar batches share buffers, and at most 1/8 is wasted.

    >>> round_up(1_000_000), round_up(1_048_576)
    (1048576, 1048576)
    """
    step = max(4096, (1 << (nbytes - 1).bit_length()) // 16)
    return -(-nbytes // step) * step


class BufferPool:
    """Creates tensors in reused memory: `lease(shape, dtype)`.

    A finalizer can run at any time: in any thread, and even in this class, if garbage collection happens there.
    So no lock is used: idle buffers are in a dict that is changed only by single atomic operations, and a buffer
    belongs to the thread that pops it.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self.idle_bytes = idle_bytes
        self._idle: dict[int, Bytes] = {}  # by id(), longest idle first

    @property
    def idle(self) -> int:
        """Bytes in idle buffers."""
        return sum(buffer.nbytes for buffer in list(self._idle.values()))

    def lease(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """Return an uninitialized contiguous CPU tensor; its memory is reused once its last alias is gone."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = self._acquire(nbytes)
        view = buffer[:nbytes]
        weakref.finalize(view, self._release, buffer).atexit = False  # at exit all memory is freed anyway
        # set_ creates a tensor that is not an autograd view: one from .view(dtype) under no_grad would not allow
        # in-place operations later, unlike the result of torch's embedding.
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return torch.empty(0, dtype=dtype).set_(torch.from_numpy(view).untyped_storage(), 0, shape, strides)

    def _acquire(self, nbytes: int) -> Bytes:
        """Return the smallest idle buffer that fits (the last of equal ones, still in the CPU caches), or a new one."""
        fitting = [buffer for buffer in list(self._idle.values()) if nbytes <= buffer.nbytes <= 2 * nbytes]
        best = min(reversed(fitting), key=lambda buffer: buffer.nbytes, default=None)
        if best is not None and self._idle.pop(id(best), None) is not None:  # None: another thread was faster
            return best
        raw = np.empty(round_up(nbytes) + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + round_up(nbytes)]

    def _release(self, buffer: Bytes) -> None:
        self._idle[id(buffer)] = buffer
        for oldest in list(self._idle):
            if self.idle <= self.idle_bytes:
                break
            self._idle.pop(oldest, None)
