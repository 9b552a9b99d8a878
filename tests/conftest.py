"""Settings of the whole test run."""

import gc
import os
import signal

from hypothesis import settings

from tests.browser.missing_browser import pytest_terminal_summary  # noqa: F401  # says loudly when no browser was there

# No deadlines: a busy machine is not a bug. In CI the examples are always the same; elsewhere each run looks further.
settings.register_profile("inlayer", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("inlayer")

# Some virtual machines advertise AMX and stop a process at its first AMX instruction, which transformers would execute.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# A shell starts background jobs with Ctrl-C ignored, and tests of interrupts would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # while tests are collected: most of what is imported stays


def pytest_collection_finish() -> None:
    """Collections no longer visit what has been imported, which takes 0.6 s per collection."""
    gc.freeze()
    gc.enable()
