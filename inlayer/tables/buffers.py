"""Output memory that is used again once nobody can see it any more.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- why: the cost of a large lookup is not the gather but page-faulting a fresh output (docs/decisions.md)
- a slab is a plain byte array; a lease is a tensor over a *fresh numpy view object* of that slab. The
  tensor's storage owns the view object, so every alias (slice, `.numpy()`, `.data`, a tensor saved in an
  autograd graph) keeps it alive; when the last one dies, its finalizer hands the slab back
- numpy allocates the slabs: it asks Linux for huge pages, so even a first use faults less than torch.empty
- idle slabs are bounded by bytes, the longest idle goes first; one larger than the bound is never kept
- a leased tensor cannot be grown with `resize_`: its storage belongs to the pool
- not here: when a lease is worth it (tables/lookup.py)
Checked in tests/tables/test_buffers.py, with broken pools that the same checks catch.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["IDLE_BYTES", "SlabPool"]

IDLE_BYTES = 256 * 2**20
ALIGNMENT = 64  # one cache line, what torch's own allocator gives
WAIT_SECONDS = 0.01

Slab = npt.NDArray[np.uint8]


def round_up(nbytes: int) -> int:
    """The next eighth of a power of two: batches of nearly one size share slabs, at most 1/8 is wasted.

    >>> round_up(1_000_000), round_up(1_048_576)
    (1048576, 1048576)
    """
    step = max(4096, (1 << (nbytes - 1).bit_length()) // 16)
    return -(-nbytes // step) * step


def new_slab(nbytes: int) -> Slab:
    """Fresh bytes, at least as many as asked for, starting on a cache line."""
    size = round_up(nbytes)
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


class SlabPool:
    """Hands out tensors over pooled memory: `lease(shape, dtype)`.

    Finalizers run wherever an object happens to die: in any thread, and inside this class's own locked
    section when the garbage collector strikes there. So a finalizer puts into a SimpleQueue, which is
    reentrant, and never waits for the lock.
    """

    def __init__(self, idle_bytes: int = IDLE_BYTES) -> None:
        self.idle_bytes = idle_bytes
        self.forget()

    def forget(self) -> None:
        """Start anew, in a forked child too, where another thread's lock would stay locked for ever."""
        self._lock = threading.Lock()
        self._returned: SimpleQueue[Slab] = SimpleQueue()
        self._idle: list[Slab] = []  # longest idle first

    @property
    def idle(self) -> int:
        """Bytes held for later use."""
        return sum(slab.nbytes for slab in tuple(self._idle))

    def lease(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """An uninitialized contiguous CPU tensor; its memory comes back when its last alias dies."""
        nbytes = math.prod(shape) * dtype.itemsize
        slab = self._take(nbytes)
        view = slab[:nbytes]
        finalizer = weakref.finalize(view, self._give_back, slab)
        finalizer.atexit = False  # at exit the process returns everything at once
        # set_ makes a tensor that is no autograd view: one from .view(dtype) under no_grad would refuse
        # in-place work later, where the result of torch's own embedding allows it.
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
        return torch.empty(0, dtype=dtype).set_(torch.from_numpy(view).untyped_storage(), 0, shape, strides)

    def _take(self, nbytes: int) -> Slab:
        """The smallest idle slab that fits and is not more than twice too large, or a new one.

        Of equal ones that which came back last: it is still in the caches.
        """
        best = None
        # The wait is bounded: code run by the garbage collector inside this very section may come here again.
        if self._lock.acquire(timeout=WAIT_SECONDS):
            try:
                self._collect()
                fitting = [i for i, slab in enumerate(self._idle) if nbytes <= slab.nbytes <= 2 * nbytes][::-1]
                if fitting:
                    best = self._idle.pop(min(fitting, key=lambda i: self._idle[i].nbytes))
            finally:
                self._lock.release()
            self._settle()
        return new_slab(nbytes) if best is None else best

    def _give_back(self, slab: Slab) -> None:
        self._returned.put(slab)
        self._settle()

    def _settle(self) -> None:
        """Sort in what came back. Whoever holds the lock looks again after releasing it."""
        while not self._returned.empty() and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        while not self._returned.empty():
            self._idle.append(self._returned.get())
        while self._idle and sum(slab.nbytes for slab in self._idle) > self.idle_bytes:
            del self._idle[0]


def shared_pool() -> SlabPool:
    """The pool of this process, made anew in a forked child."""
    pool = SlabPool()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pool.forget)
    return pool
