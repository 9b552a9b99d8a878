"""Resource limits of the runner: CPU time, memory, size of files, open files, threads.

fork server -> runner -> [limits] -> the learner's file
- the kernel enforces what `set_limits` sets; the session limits wall time and output, the runner threads
- see also: what the kernel forbids (restrict.py)
Tested with misbehaving code in tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class GradingLimits:
    """Resources that a learner's file may use."""

    seconds: float = 20.0  # CPU time for all checks together
    wall_seconds: float = 120.0
    memory: int = 2 << 30  # bytes on top of Python and torch
    output: int = 1 << 20  # printed bytes
    file_bytes: int = 64 << 20  # maximum size of each file
    open_files: int = 256
    threads: int = 16


def set_limits(limits: GradingLimits) -> None:
    """Limit the CPU time, memory and files of this process."""
    import resource

    # Ends an endless loop even if the grader is gone: SIGXCPU, which says why, then SIGKILL, which cannot be caught.
    cpu_limit = 1 + math.ceil(limits.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit + 2))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, limits.file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.open_files, limits.open_files))
    if sys.platform == "linux":  # on top of what is mapped before the learner's code runs
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + limits.memory, mapped + limits.memory))
