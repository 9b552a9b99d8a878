"""Work in threads: as many as the process may use, and with the errors of a plain loop."""

import os
import signal
import threading

import numpy as np  # noqa: F401  # loads BLAS
import pytest
from threadpoolctl import threadpool_info

from inlayer.threads import core_count, map_in_threads, one_blas_thread


def test_omp_num_threads_limits_the_cores(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    everything = core_count()
    assert everything >= 1
    for value, expected in {"1": 1, "100000": everything, "0": everything, "": everything, "two": everything}.items():
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert core_count() == expected, value


def test_items_run_at_the_same_time_and_results_keep_their_order():
    together = threading.Barrier(3, timeout=60)

    def wait(item: int) -> int:
        together.wait()  # passes only if all three are running
        return item * item

    assert map_in_threads(wait, range(3)) == [0, 1, 4]
    assert map_in_threads(str, []) == []
    assert map_in_threads(lambda _: threading.current_thread(), [0]) == [threading.main_thread()]


def test_the_first_error_is_raised():
    with pytest.raises(ZeroDivisionError):
        map_in_threads(lambda item: 1 // item, [1, 0])


def test_ctrl_c_does_not_wait_for_the_threads():
    release, ended = threading.Event(), threading.Semaphore(0)

    def wait(item: int) -> None:
        if item == 1:  # the last one that is started
            os.kill(os.getpid(), signal.SIGINT)
        release.wait()
        ended.release()

    with pytest.raises(KeyboardInterrupt):
        map_in_threads(wait, range(2))
    assert not ended.acquire(blocking=False)  # both are still waiting
    release.set()
    assert all(ended.acquire(timeout=60) for _ in range(2))


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


def test_blas_threads_are_limited_and_restored():
    before = blas_threads()

    def limited(_: int) -> list[int]:
        with one_blas_thread():
            return blas_threads()

    assert map_in_threads(limited, range(4)) == [[1] * len(before)] * 4  # sequentially
    assert blas_threads() == before
