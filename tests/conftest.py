"""Settings of the whole test run."""

import os
import signal

import pytest
from hypothesis import settings

from tests.browser.missing_browser import pytest_terminal_summary  # noqa: F401  # says loudly when no browser was there

# No deadlines: a busy machine is not a bug. In CI the examples are always the same; elsewhere each run looks further.
settings.register_profile("inlayer", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("inlayer")

# Some virtual machines advertise AMX and stop a process at its first AMX instruction, which transformers would execute.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# A shell starts background jobs with Ctrl-C ignored, and tests of interrupts would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)  # after `-m` has chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the long tests first, on different workers: pytest-xdist gives each worker a contiguous part."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long")]
    others = [item for item in items if not item.get_closest_marker("long")]
    ends = [len(others) * worker // workers for worker in range(workers + 1)]
    items[:] = [
        item for worker in range(workers) for item in (*long[worker::workers], *others[ends[worker] : ends[worker + 1]])
    ]
