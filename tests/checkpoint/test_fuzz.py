"""Damaged checkpoints are read, or rejected with a typed one-line error, within time and memory limits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("gguf")
from tests.checkpoint.fuzz import MAX_MEMORY_MB, MAX_SECONDS, run

PARTS, EACH = 2, 1_000  # in parts, to share the cores


def test_damaged_checkpoints(tmp_path: Path) -> None:
    result = run(tmp_path, PARTS * EACH, 40)
    assert result["problems"] == []
    assert min(result["counts"]["read"], result["counts"]["rejected"]) > 0  # control: some damage matters, some not


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_thousands_of_damaged_checkpoints(tmp_path: Path, part: int) -> None:
    command = [sys.executable, "-m", "tests.checkpoint.fuzz", str(tmp_path), str(part * EACH), str(EACH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]  # a crash of the process
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["problems"] == []
    assert sum(result["counts"].values()) == EACH
    assert min(result["counts"].values()) > EACH // 20  # control: some damage matters, some does not
    assert result["slowest"][0] < MAX_SECONDS, result["slowest"]
    assert result["memory_mb"] < MAX_MEMORY_MB
