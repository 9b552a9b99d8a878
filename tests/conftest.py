"""Settings of the whole test run."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.browser.missing_browser import pytest_terminal_summary  # noqa: F401  # says loudly when no browser was there

# No deadlines: a busy machine is not a bug. In CI the examples are always the same; elsewhere each run looks further.
settings.register_profile("inlayer", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("inlayer")

# Some virtual machines advertise AMX and stop a process at its first AMX instruction, which transformers would execute.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

# Some comparisons are bit by bit, and sums depend on the number of threads. Tests also run in parallel processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts background jobs with Ctrl-C ignored, and tests of interrupts would inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

OLDEST_COMPARED = (5, 22)  # of transformers; older ones lack model types that docs/families.md lists as equal

gc.disable()  # while tests are collected: most of what is imported stays


def pytest_collection_finish() -> None:
    """Collections no longer visit what has been imported, which takes 0.6 s per collection."""
    build_commands_once()
    gc.freeze()
    gc.enable()


def build_commands_once() -> None:
    """`main()` makes Typer build every command, half of the time of its tests. --help changes what it gets."""
    command_line: Any = sys.modules.get("inlayer.cli")
    if command_line is None:
        return
    build, built = command_line.get_command, dict[tuple[int, int], Any]()

    def get_command(app: Any) -> Any:
        if not {"--help", "-h"}.isdisjoint(sys.argv):
            return build(app)
        size = len(app.registered_commands), len(app.registered_groups)  # commands join when they are imported
        if size not in built:
            built[size] = build(app)
        return built[size]

    command_line.get_command = get_command


@pytest.fixture
def without_type_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """For invalid arguments: the error of the library, as users see it, instead of the one of the test run's checks."""
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)


def mentions_slow_tests(path: Path) -> bool:
    return "slow" in path.read_text(encoding="utf-8")


def has_only_slow_tests(path: Path) -> bool:
    return "\npytestmark = pytest.mark.slow\n" in path.read_text(encoding="utf-8")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m slow` and `-m "not slow"` do not even import files without such tests: seconds per process."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    if config.option.markexpr == "slow":
        return None if mentions_slow_tests(collection_path) else True
    if config.option.markexpr == "not slow":
        return True if has_only_slow_tests(collection_path) else None
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A slow test in a file without that word would never run: an error. Python 3.10 has no transformers 5.21."""
    if tuple(map(int, version("transformers").split(".")[:2])) < OLDEST_COMPARED:
        for item in items:
            if item.path.parent.name == "families":
                item.add_marker(pytest.mark.skip(f"compares with transformers {'.'.join(map(str, OLDEST_COMPARED))}"))
    for path in {item.path for item in items if item.get_closest_marker("slow")}:
        if not mentions_slow_tests(path):
            raise pytest.UsageError(f"{path} has slow tests, but `-m slow` skips it: write `slow` into it")
