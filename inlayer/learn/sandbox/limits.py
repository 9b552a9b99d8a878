"""Resource limits of the runner: CPU time, memory, size of files, open files.

fork server -> runner -> [limits] -> the learner's file
- how much a task may use is decided by the session (GradingLimits in session.py)
- see also: what the kernel forbids (restrict.py)
Tested with misbehaving code in tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path


def set_limits(memory: int, seconds: float) -> None:
    """Limit this process to `memory` more bytes and `seconds` of CPU time."""
    import resource

    cpu_limit = 1 + math.ceil(seconds)  # ends an endless loop even if the grader is gone
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit, cpu_limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 20, 64 << 20))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    if sys.platform == "linux":  # on top of what is mapped before the learner's code runs
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
