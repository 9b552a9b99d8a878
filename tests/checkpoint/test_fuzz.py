"""Thousands of damaged checkpoints: each is read or refused in one typed line, fast and within bounds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gguf")
from tests.checkpoint.fuzz import MAX_MEMORY, SLOWEST

# With the 2,000 of test_gguf.py and the 800 of test_pytorch.py 10,000 damaged files; in parts, to share the cores.
PARTS, EACH = 4, 1_800


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_checkpoints(tmp_path: Path, part: int) -> None:
    command = [sys.executable, "-m", "tests.checkpoint.fuzz", str(tmp_path), str(part * EACH), str(EACH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]  # a crash of the process would be seen here
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["wrong"] == []
    assert sum(report["counts"].values()) == EACH
    assert min(report["counts"].values()) > EACH // 20  # control: the damage bites, and not always
    assert report["slowest"][0] < SLOWEST, report["slowest"]
    assert report["memory_mb"] < MAX_MEMORY
