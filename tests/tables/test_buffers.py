"""BufferPool: memory that is still in use is never reused, and memory that is not in use is.

Every promise is checked by a function that takes a pool, and the same function must reject a broken pool.
"""

from __future__ import annotations

import copy
import gc
import io
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from inlayer.tables.buffers import ALIGNMENT, BufferPool, round_up

SHAPE = (64, 33)


def over(buffer: np.ndarray, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(buffer[: math.prod(shape) * dtype.itemsize]).view(dtype).view(shape)


class HastyPool(BufferPool):
    """Broken: reuses every buffer at once, while the caller still uses it."""

    def lease(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        buffer = self._acquire(math.prod(shape) * dtype.itemsize)
        self._release(buffer)
        return over(buffer, shape, dtype)


class WrongWatchPool(BufferPool):
    """Broken: the finalizer is on another view object than the one that the tensor holds."""

    def lease(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        buffer = self._acquire(math.prod(shape) * dtype.itemsize)
        weakref.finalize(buffer[:], self._release, buffer)
        return over(buffer, shape, dtype)


class ForgetfulPool(BufferPool):
    """Broken: never reuses memory."""

    lost: ClassVar[list[np.ndarray]] = []

    def _release(self, buffer: np.ndarray) -> None:
        self.lost.append(buffer)


def filled(pool: BufferPool, value: float) -> Tensor:
    return pool.lease(SHAPE, torch.float32).fill_(value)


def kept_results_stay(pool: BufferPool) -> bool:
    kept = [filled(pool, value) for value in range(50)]
    for value in range(50, 80):
        filled(pool, value)  # dies at once: its memory goes round
    return all(bool((rows == value).all()) for value, rows in enumerate(kept))


ALIASES = {
    "slice": lambda rows: rows[3:5],
    "view": lambda rows: rows.view(-1),
    "transpose": lambda rows: rows.t(),
    "dtype view": lambda rows: rows.view(torch.int32),
    "detach": lambda rows: rows.detach(),
    "data": lambda rows: rows.data,
    "numpy": lambda rows: rows.numpy(),
    "numpy slice": lambda rows: rows.numpy()[1:3, ::2],
    "round trip": lambda rows: torch.from_numpy(rows.numpy()[2:]),
    "dlpack": torch.from_dlpack,
    "storage": lambda rows: rows.untyped_storage(),
    "memoryview": lambda rows: memoryview(rows.numpy()),
    "saved for backward": lambda rows: (torch.ones(SHAPE, requires_grad=True) * rows).sum(),
    "leaf of a graph": lambda rows: (rows.requires_grad_() ** 2).sum(),
    "weak dict": lambda rows: {"deep": [(rows.unsqueeze(0),)]},
}


def alias_keeps_memory(pool: BufferPool, alias: str) -> bool:
    rows = filled(pool, 7.0)
    address = rows.data_ptr()
    held = ALIASES[alias](rows)
    del rows
    others = [filled(pool, -1.0) for _ in range(3)]
    reused = address in [other.data_ptr() for other in others]
    del held
    return not reused


def memory_comes_back(pool: BufferPool) -> bool:
    rows = filled(pool, 1.0)
    address = rows.data_ptr()
    del rows
    return filled(pool, 2.0).data_ptr() == address


def test_results_kept_alive_are_unchanged() -> None:
    assert kept_results_stay(BufferPool())


@pytest.mark.parametrize("broken", [HastyPool, WrongWatchPool])
def test_broken_pool_is_detected(broken: type[BufferPool]) -> None:
    assert not kept_results_stay(broken())


@pytest.mark.parametrize("alias", ALIASES)
def test_every_alias_keeps_the_memory(alias: str) -> None:
    assert alias_keeps_memory(BufferPool(), alias)


@pytest.mark.parametrize("alias", ALIASES)
def test_memory_is_returned_after_the_last_alias(alias: str) -> None:
    pool = BufferPool()
    rows = filled(pool, 7.0)
    address = rows.data_ptr()
    held = ALIASES[alias](rows)
    del rows, held
    gc.collect()
    assert filled(pool, 2.0).data_ptr() == address


def test_pool_without_a_finalizer_on_the_view_is_detected() -> None:
    assert not alias_keeps_memory(WrongWatchPool(), "slice")


def test_memory_is_reused_after_the_result_is_gone() -> None:
    assert memory_comes_back(BufferPool())
    assert not memory_comes_back(ForgetfulPool())


def test_equal_buffers_are_reused_last_in_first_out() -> None:
    pool = BufferPool()
    leases = [pool.lease(SHAPE, torch.float32) for _ in range(3)]
    middle = leases[1].data_ptr()
    del leases[0], leases[1], leases[0]  # the first, the third, then the second
    assert pool.lease(SHAPE, torch.float32).data_ptr() == middle


def test_copies_are_independent() -> None:
    pool = BufferPool()
    rows = filled(pool, 3.0)
    buffer = io.BytesIO()
    torch.save(rows, buffer)
    buffer.seek(0)
    copies = [copy.deepcopy(rows), rows.clone(), torch.load(buffer)]
    del rows
    filled(pool, 4.0)
    assert all(bool((copied == 3.0).all()) for copied in copies)


def test_moving_to_shared_memory_returns_the_buffer() -> None:
    pool = BufferPool()
    rows = filled(pool, 3.0)
    slice_ = rows[1:]
    rows.share_memory_()
    filled(pool, 4.0)
    assert rows.is_shared()
    assert bool((rows == 3.0).all())
    assert bool((slice_ == 3.0).all())


def test_lease_is_not_an_autograd_view() -> None:
    pool = BufferPool()
    with torch.no_grad():
        rows = filled(pool, 3.0)
    weight = torch.ones(SHAPE, requires_grad=True)
    rows += weight  # an autograd view made under no_grad refuses this
    rows.sum().backward()
    assert not rows._is_view()
    assert torch.equal(weight.grad, torch.ones(SHAPE))


def test_lease_is_aligned_contiguous_and_has_its_dtype() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn):
        rows = BufferPool().lease((3, 5, 7), dtype)
        assert (rows.dtype, rows.shape, rows.is_contiguous()) == (dtype, (3, 5, 7), True)
        assert rows.data_ptr() % ALIGNMENT == 0


def test_lease_in_inference_mode_is_an_inference_tensor() -> None:
    pool = BufferPool()
    with torch.inference_mode():
        rows = filled(pool, 3.0)
        address = rows.data_ptr()
        assert rows.is_inference()
    assert filled(pool, 4.0).data_ptr() != address
    assert bool((rows == 3.0).all())
    del rows
    reused = [filled(pool, 4.0) for _ in range(2)]
    assert address in [rows.data_ptr() for rows in reused]
    assert not any(rows.is_inference() for rows in reused)


def test_idle_memory_is_limited() -> None:
    size = round_up(64 * 33 * 4)
    pool = BufferPool(idle_bytes=3 * size)
    kept = [filled(pool, value) for value in range(10)]
    assert pool.idle == 0
    del kept
    assert pool.idle == 3 * size
    unbounded = BufferPool(idle_bytes=10**9)
    kept = [filled(unbounded, value) for value in range(10)]
    del kept
    assert unbounded.idle == 10 * size  # control


def test_buffer_larger_than_the_limit_is_not_kept() -> None:
    pool = BufferPool(idle_bytes=4096)
    rows = pool.lease((1, 4096), torch.float32)
    del rows
    assert pool.idle == 0


def test_small_lease_does_not_use_a_large_buffer() -> None:
    pool = BufferPool()
    large = pool.lease((1, 1_000_000), torch.float32)
    address = large.data_ptr()
    del large
    small = pool.lease((1, 1000), torch.float32)
    assert small.data_ptr() != address
    assert pool.lease((1, 990_000), torch.float32).data_ptr() == address  # nearly the same size: reused


@pytest.mark.parametrize("nbytes", [1, 4096, 4097, 10**6, 2**20, 2**20 + 1, 123_456_789])
def test_round_up_wastes_at_most_an_eighth_and_a_page(nbytes: int) -> None:
    assert nbytes <= round_up(nbytes) <= nbytes * 9 / 8 + 4096


def run_threads(pool: BufferPool) -> bool:
    """Many threads lease at once, keep some results, check and release them."""

    def work(seed: int) -> bool:
        kept: list[tuple[int, Tensor]] = []
        for step in range(300):
            value = seed * 1000 + step
            kept.append((value, filled(pool, value)))
            if len(kept) > 5:
                kept.pop(step % 5)
            if not all(bool((rows == value).all()) for value, rows in kept):
                return False
        return True

    with ThreadPoolExecutor(8) as threads:
        return all(threads.map(work, range(8)))


def test_results_are_unchanged_across_threads() -> None:
    assert run_threads(BufferPool())


def test_pool_broken_across_threads_is_detected() -> None:
    assert not run_threads(HastyPool())


def test_result_dropped_in_another_thread_is_returned() -> None:
    pool = BufferPool()
    box = [filled(pool, 1.0)]
    address = box[0].data_ptr()
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    assert filled(pool, 2.0).data_ptr() == address


def test_results_in_reference_cycles_are_returned_by_the_collector() -> None:
    pool = BufferPool()
    for value in range(20):
        cycle: list[object] = [filled(pool, value)]
        cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.idle >= 20 * 64 * 33 * 4


def test_finalizers_inside_a_lease_are_harmless() -> None:
    pool = BufferPool()
    box = [filled(pool, value) for value in range(3)]

    class Collecting(dict[int, np.ndarray]):
        """Drops a result whenever the pool looks at its buffers, as the garbage collector may do."""

        def values(self) -> Any:
            if box:
                box.pop()
            return super().values()

        def pop(self, *arguments: Any) -> Any:
            if box:
                box.pop()
            return super().pop(*arguments)

    pool._idle = Collecting()
    kept = [filled(pool, 2.0), filled(pool, 3.0)]
    assert [bool((rows == value).all()) for rows, value in zip(kept, (2.0, 3.0), strict=True)] == [True, True]
    assert not box
    del kept
    assert pool.idle == 3 * round_up(64 * 33 * 4)  # none was forgotten


def in_child(queue: multiprocessing.Queue[bool], rows: Tensor) -> None:
    from inlayer.tables import table as table_module

    table_module._BUFFERS.lease((4, 4), torch.float32).fill_(0.0)
    queue.put(bool((rows == 5.0).all()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_has_a_working_pool_and_the_parents_results() -> None:
    from inlayer.tables import table as table_module

    rows = table_module._BUFFERS.lease(SHAPE, torch.float32).fill_(5.0)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(queue, rows))
    child.start()
    assert queue.get(timeout=300)
    child.join(timeout=300)
    assert child.exitcode == 0


@pytest.mark.slow
def test_interpreter_exit_is_silent() -> None:
    program = """
import torch, threading
from inlayer.tables import table as table_module
table_module.MIN_BUFFERED_BYTES = 1
weight = torch.randn(50, 8)
kept = [table_module.look_up(torch.arange(9), weight) for _ in range(20)]
cycle = [kept[3]]; cycle.append(cycle)
held = kept[5].numpy()
class Late:
    def __del__(self): self.rows = None
late = Late(); late.rows = kept.pop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
