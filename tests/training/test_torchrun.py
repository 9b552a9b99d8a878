"""`inlayer train` under torchrun equals a single process, even if one of the processes is killed and resumed."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.slow

STEPS = 40
OPTIONS = ["--tokenizer", "bytes", "--preset", "toy", "--block-size", "32", "--batch-size", "8", "--steps", str(STEPS)]
OPTIONS += ["--save-interval", "5", "--eval-interval", "10"]
TIMEOUT = 900.0  # seconds, on a busy machine


def write_text(folder: Path) -> Path:
    path = folder / "text.txt"
    path.write_text("".join(f"Line {number} of {number * number}: the quick brown fox.\n" for number in range(900)))
    return path


def start(processes: int, *arguments: str) -> subprocess.Popen[str]:
    """Start `inlayer train` in a number of processes, like a user does."""
    launcher = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(processes), "-m"]
    command = [sys.executable, "-m", *(launcher if processes > 1 else []), "inlayer", "train", *arguments]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=env)


def finish(program: subprocess.Popen[str]) -> tuple[int, str]:
    try:
        _, output = program.communicate(timeout=TIMEOUT)
    finally:
        program.kill()
    return program.returncode, output


def metrics(folder: Path) -> list[dict[str, Any]]:
    path = folder / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def kill_one(program: subprocess.Popen[str], folder: Path) -> None:
    """Kill the second process after a few steps, when a state has been saved."""
    end = time.monotonic() + TIMEOUT
    while len(metrics(folder)) < 8 and time.monotonic() < end:
        assert program.poll() is None, program.communicate()[1]
        time.sleep(0.02)
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    ranks = [int(child) for child in children if b"RANK=1\0" in Path(f"/proc/{child}/environ").read_bytes()]
    assert len(ranks) == 1
    os.kill(ranks[0], signal.SIGKILL)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The text, and the folder of a run in one process."""
    folder = tmp_path_factory.mktemp("alone")
    text = write_text(folder)
    code, output = finish(start(1, str(text), "--out", str(folder / "model"), *OPTIONS))
    assert code == 0, output
    return text, folder / "model"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
def test_killed_process_ends_the_job_and_it_resumes(alone: tuple[Path, Path], tmp_path: Path) -> None:
    text, single = alone
    mode = "vocab"  # test_parallel.py has both modes, and test_help.py runs torchrun with the other one
    out = tmp_path / "model"
    program = start(2, str(text), "--out", str(out), "--parallel", mode, *OPTIONS)
    kill_one(program, out)
    code, output = finish(program)
    assert code not in (0, 130)
    # torchrun may end the other process before that one notices and writes how to resume
    assert "SIGKILL" in output or ("lost its connection" in output and "--resume" in output)
    killed_at = len(metrics(out))
    assert 8 <= killed_at < STEPS  # control: it was not finished
    code, output = finish(start(2, "--out", str(out), "--parallel", mode, "--resume"))
    assert code == 0, output
    for mine, theirs in zip(metrics(out), metrics(single), strict=True):
        for name in ("loss", "validation_loss", "gradient_norm", "mean_vector_ratio", "head_gradient_share"):
            assert (name in mine) == (name in theirs)
            assert math.isclose(mine.get(name, 0), theirs.get(name, 0), rel_tol=1e-5, abs_tol=1e-5), (
                name,
                mine,
                theirs,
            )
    assert metrics(single)[-1]["loss"] < metrics(single)[0]["loss"] - 1  # control: the model learned something
    here, there = (load_file(folder / "model.safetensors") for folder in (out, single))
    assert here.keys() == there.keys()
    assert max((here[name] - there[name]).abs().max().item() for name in here) < 1e-4
    assert sorted(path.name for path in out.iterdir()) == sorted(path.name for path in single.iterdir())
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (out / name).read_bytes() == (single / name).read_bytes()
