"""Reused output memory for large lookups.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- why: most of the time of a large lookup goes into page faults of a new output, not into the gather (docs/decisions.md)
- a lease is a tensor over a *new numpy view object* of a buffer. The tensor's storage owns the view object, so that
  every alias (slice, `.numpy()`, a tensor saved for backward) keeps it alive; its finalizer returns the buffer
- numpy allocates the buffers: it requests huge pages on Linux, so that even the first use has fewer page faults
Tested in tests/tables/test_buffers.py, with broken pools that the same checks detect.
"""

from __future__ import annotations

import math
import threading
import weakref
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

IDLE_BYTES = 256 * 2**20
ALIGNMENT = 64  # a cache line, as in torch's allocator
WAIT_SECONDS = 0.01

Buffer = npt.NDArray[np.uint8]


def round_up(nbytes: int) -> int:
    """Round up to an eighth of a power of two: similar batches share buffers, and at most 1/8 is wasted.

    >>> round_up(1_000_000), round_up(1_048_576)
    (1048576, 1048576)
    """
    step = max(4096, (1 << (nbytes - 1).bit_length()) // 16)
    return -(-nbytes // step) * step


class BufferPool:
    """Creates tensors in pooled memory: `lease(shape, dtype)`.

    A finalizer can run at any time: in any thread, and even in this class while it holds its lock, if garbage
    collection happens there. Therefore it only puts the buffer into a SimpleQueue, which is reentrant, and never waits.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self.idle_bytes = idle_bytes
        self.reset()

    def reset(self) -> None:
        """Start with an empty pool; in a forked child, a lock of another thread would never be released."""
        self._lock = threading.Lock()
        self._returned: SimpleQueue[Buffer] = SimpleQueue()
        self._idle: list[Buffer] = []  # longest idle first

    @property
    def idle(self) -> int:
        """Bytes in idle buffers."""
        return sum(buffer.nbytes for buffer in tuple(self._idle))

    def lease(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized contiguous CPU tensor; its memory is returned when its last alias is gone."""
        nbytes = math.prod(shape) * dtype.itemsize
        buffer = self._acquire(nbytes)
        view = buffer[:nbytes]
        weakref.finalize(view, self._give_back, buffer).atexit = False  # at exit all memory is freed anyway
        # set_ creates a tensor that is not an autograd view: one from .view(dtype) under no_grad would not allow
        # in-place operations later, unlike the result of torch's embedding.
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return torch.empty(0, dtype=dtype).set_(torch.from_numpy(view).untyped_storage(), 0, shape, strides)

    def _acquire(self, nbytes: int) -> Buffer:
        """The smallest idle buffer that fits (of equal ones the last one, still in the CPU caches), or a new one."""
        best = None
        # The wait is bounded, because code run by the garbage collector in this section may get here again.
        if self._lock.acquire(timeout=WAIT_SECONDS):
            try:
                self._collect()
                fitting = [i for i, buffer in enumerate(self._idle) if nbytes <= buffer.nbytes <= 2 * nbytes][::-1]
                if fitting:
                    best = self._idle.pop(min(fitting, key=lambda i: self._idle[i].nbytes))
            finally:
                self._lock.release()
            self._settle()
        if best is not None:
            return best
        raw = np.empty(round_up(nbytes) + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + round_up(nbytes)]

    def _give_back(self, buffer: Buffer) -> None:
        self._returned.put(buffer)
        self._settle()

    def _settle(self) -> None:
        """Move returned buffers to the idle ones. A thread that holds the lock checks again after releasing it."""
        while not self._returned.empty() and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        while not self._returned.empty():
            self._idle.append(self._returned.get())
        while self._idle and sum(buffer.nbytes for buffer in self._idle) > self.idle_bytes:
            del self._idle[0]
