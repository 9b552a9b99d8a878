"""Runs of `inlayer train` that are killed, stopped or damaged: resumed, they match an undisturbed run bit for bit."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import inlayer
from tests.training.launcher import Launcher
from tests.training.texts import write_text

pytestmark = pytest.mark.slow

SMALL = ("--n-layer", 1, "--n-embd", 32, "--block-size", 32, "--batch-size", 4)
STEPS = ("--steps", 60, "--save-interval", 7, "--eval-interval", 10)
CASES: dict[str, tuple[object, ...]] = {
    "bytes": ("--tokenizer", "bytes", "--architecture", "gpt", "--preset", "toy", "--dropout", 0.1, *SMALL, *STEPS),
    "bpe": (
        "--vocab-size",
        300,
        "--preset",
        "toy",
        "--gradient-accumulation-steps",
        2,
        "--precision",
        "bfloat16",
        *SMALL,
        *STEPS,
    ),
}
COMPARED = (
    "step",
    "loss",
    "validation_loss",
    "gradient_norm",
    "learning_rate",
    "tokens",
    "head_gradient_share",
    "logit_std",
)


@pytest.fixture(scope="module")
def launch() -> Iterator[Launcher]:
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot be forked here")
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("corpus") / "text.txt")


Metrics = dict[str, Any]
References = Callable[[str], tuple[list[Metrics], dict[str, bytes]]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, text: Path) -> References:
    """Runs without interruption, in processes with another hash seed."""
    runs: dict[str, tuple[list[Metrics], dict[str, bytes]]] = {}

    def find(case: str) -> tuple[list[Metrics], dict[str, bytes]]:
        if case not in runs:
            out = tmp_path_factory.mktemp("undisturbed") / "out"
            env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
            command = [sys.executable, "-m", "inlayer", "train", str(text), "--out", str(out), *map(str, CASES[case])]
            subprocess.run(command, check=True, capture_output=True, env=env)
            runs[case] = read_metrics(out), model_files(out)
        return runs[case]

    return find


def read_metrics(out: Path) -> list[Metrics]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in COMPARED if name in line} for line in lines]


def model_files(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in ("model.safetensors", "config.json", "tokenizer.json")}


def count_steps(out: Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_same(out: Path, reference: tuple[list[Metrics], dict[str, bytes]]) -> None:
    metrics, files = reference
    assert [line["step"] for line in metrics] == list(range(1, 61))
    assert sum("validation_loss" in line for line in metrics) == 6
    assert read_metrics(out) == metrics
    assert model_files(out) == files
    assert not [path.name for path in out.rglob(".*")]  # no temporary files


# ---- kill -9


@pytest.mark.parametrize("case", CASES)
def test_run_killed_many_times(
    case: str, tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    out = tmp_path / "out"
    command = ("train", text, "--out", out, *CASES[case], "--resume")
    for number in (1, 4, 9):  # during preparation
        assert launch(*command, kill_at=number, below=out)[0] == -signal.SIGKILL
    for step in (3, 10, 24, 41, 60):
        assert launch(*command, signal_at=(step, signal.SIGKILL))[0] == -signal.SIGKILL
        assert count_steps(out) == step - 1
    if case == "bytes":  # the saved number of threads applies, whatever the environment
        env = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "9"}
        again = [sys.executable, "-m", "inlayer", "train", "--out", str(out), "--resume"]
        subprocess.run(again, check=True, capture_output=True, env=env)
    else:
        assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed(case))


def test_run_killed_before_changes_of_its_folder(
    tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    """Killed right before each of the first changes on disk, and some later ones; some runs are killed twice."""
    later = random.Random(0).sample(range(25, 140), 3)
    numbers = [*range(1, 12), 15, *later]
    killed = 0
    for number in numbers:
        out = tmp_path / f"killed-{number}"
        command = ("train", text, "--out", out, *CASES["bytes"], "--resume")
        codes = [launch(*command, kill_at=number, below=out)[0]]
        if number in numbers[::6]:
            codes.append(launch(*command, kill_at=number + 3, below=out)[0])
        killed += codes.count(-signal.SIGKILL)
        assert set(codes) <= {-signal.SIGKILL, 0}
        if number % 5 == 0 or number in later:
            assert launch(*command)[0] == 0
            check_same(out, undisturbed("bytes"))
        else:  # others only have to take a step
            assert launch(*command, signal_at=(2, signal.SIGKILL))[0] == -signal.SIGKILL
            assert count_steps(out) == 1
        shutil.rmtree(out)
    assert killed >= len(numbers) - 1


def test_model_is_intact_while_it_is_written_again(tmp_path: Path, text: Path, launch: Launcher) -> None:
    """Killed while the last files are written, the folder stays a valid model."""
    out = tmp_path / "out"
    command = ("train", text, "--out", out, *CASES["bytes"])
    assert launch(*command)[0] == 0
    before = model_files(out)
    for number in (3, 7, 11, 15):
        code, _ = launch("train", "--out", out, "--resume", kill_at=number, below=out)
        assert code == -signal.SIGKILL
        assert model_files(out) == before
        inlayer.load(out)
    assert launch("train", "--out", out, "--resume")[0] == 0
    assert model_files(out) == before


# ---- Ctrl-C


def test_ctrl_c_saves_and_prints_how_to_resume(
    tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    out = tmp_path / "my run"
    command = ("train", text, "--out", out, *CASES["bytes"])
    code, err = launch(*command, signal_at=(11, signal.SIGINT))
    assert code == 130
    assert count_steps(out) == 11
    assert err.splitlines()[-1] == (
        "stopped at step 11 of 60 (the model so far is saved and can be used; the report is written after the last "
        f"step); to resume: inlayer train --out '{out}' --resume"
    )
    assert "Traceback" not in err
    model = inlayer.load(out)  # the model so far is saved
    assert model.table.num_embeddings == 256
    assert (out / "run" / "state-000000011.safetensors").exists()
    # SIGTERM, which a machine sends at shutdown, does the same.
    code, err = launch("train", "--out", out, "--resume", signal_at=(20, signal.SIGTERM))
    assert (code, count_steps(out)) == (130, 20), err
    assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed("bytes"))


def test_ctrl_c_before_the_first_step(tmp_path: Path, text: Path, launch: Launcher) -> None:
    out = tmp_path / "out"
    code, err = launch("train", text, "--out", out, *CASES["bpe"], signal_at=(0, signal.SIGINT))
    assert code == 130
    assert count_steps(out) == 0
    assert "Traceback" not in err
    assert f"stopped at step 0 of 60; to resume: inlayer train --out {out} --resume" in err


# ---- errors


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, text: Path, launch: Launcher) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    assert launch("train", text, "--out", out, *CASES["bytes"])[0] == 0
    return out


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def error_line(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("inlayer: ")]
    assert err.splitlines()[-1] == line
    return line


def test_second_run_in_the_same_folder(finished: Path, text: Path, launch: Launcher) -> None:
    before = everything(finished)
    for other in ((), ("--seed", 5)):
        code, err = launch("train", text, "--out", finished, *CASES["bytes"], *other)
        assert code == 2
        assert "already contains a run; use --resume to continue it, or another folder" in error_line(err)
    assert everything(finished) == before


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (("--steps", 59), "steps 60, not 59"),
        (("--learning-rate", 0.1), "learning-rate 0.002, not 0.1"),
        (("--dropout", 0.2), "dropout 0.1, not 0.2"),
        (("--tokenizer", "bpe"), "tokenizer bytes, not bpe"),
        (("--no-tie",), "tie True, not False"),
        (("--preset", "small"), "preset toy, not small"),
        (("--seed", 1), "seed 0, not 1"),
        (("--validation-fraction", 0.1), "validation-fraction 0.05, not 0.1"),
        (("/etc/hostname",), "contains a run with other files"),
    ],
)
def test_resume_with_other_settings(other: tuple[object, ...], words: str, finished: Path, launch: Launcher) -> None:
    before = everything(finished)
    code, err = launch("train", *other, "--out", finished, "--resume")
    assert code == 2
    assert words in error_line(err)
    assert everything(finished) == before


def test_resume_with_the_same_settings(finished: Path, text: Path, launch: Launcher) -> None:
    same = ("--positions", "learned", "--n-head", 4, "--tie", "--max-grad-norm", 1.0, "--n-inner", 128)
    assert launch("train", text, "--out", finished, *CASES["bytes"], *same, "--resume")[0] == 0


def test_resume_without_a_run(tmp_path: Path, launch: Launcher) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for out in (tmp_path, tmp_path / "missing"):
        code, err = launch("train", "--out", out, "--resume")
        assert code == 2
        assert "contains no run to resume; start one without --resume" in error_line(err)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# ---- damage


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_damaged_state_and_its_advice(
    finished: Path, tmp_path: Path, launch: Launcher, undisturbed: References
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    flip_bit(out / "run" / "state-000000060.safetensors")
    code, err = launch("train", "--out", out, "--resume")
    assert code == 2
    message = error_line(err)
    assert "state-000000060.safetensors, the state of step 60, is damaged" in message
    assert "the state of step 56 is intact: to resume from it, remove state-000000060.safetensors" in message
    (out / "run" / "state-000000060.safetensors").unlink()
    assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed("bytes"))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("metrics.jsonl", b"", "metrics.jsonl does not match the saved state of step 60"),
        ("metrics.jsonl", b"5\n[]\n", "does not match the saved state"),
        ("metrics.jsonl", b'{"step": 2, "loss": 1, "seconds": 1}\n' * 60, "does not match the saved state"),
        ("run/config.json", b"{}", "config.json is damaged"),
        ("run/config.json", b"\0", "config.json is damaged"),
        ("run/config.json", b"[" * 100_000, "config.json is damaged"),
        ("run/tokens/train.bin", b"", "is 0 bytes, but tokens.json lists"),
        ("run/tokens/tokens.json", b"", "tokens.json is empty; remove the folder, and resume the run"),
        ("run/tokens/tokens.json", b"{", "is not valid JSON"),
    ],
)
def test_other_damage_is_reported_in_one_line(
    name: str, data: bytes, words: str, finished: Path, tmp_path: Path, launch: Launcher
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / name).write_bytes(data)
    before = everything(out)
    code, err = launch("train", "--out", out, "--resume")
    assert code == 2
    assert words in error_line(err)
    assert everything(out) == before


# ---- a full disk


@pytest.mark.skipif(sys.platform != "linux", reason="limits the file size the way Linux does")
def test_full_disk_keeps_the_last_state(tmp_path: Path, text: Path, launch: Launcher, undisturbed: References) -> None:
    out = tmp_path / "out"
    command = ("train", text, "--out", out, *CASES["bytes"])
    launch(*command, signal_at=(15, signal.SIGKILL))
    code, err = launch("train", "--out", out, "--resume", file_limit=100_000)
    assert code == 2
    message = error_line(err)
    assert "cannot be written to" in message
    assert "File too large" in message
    assert "the state of step 14 is kept" in message
    # A limit that the metrics exceed first.
    code, err = launch("train", "--out", out, "--resume", file_limit=(out / "metrics.jsonl").stat().st_size + 300)
    assert code == 2
    message = error_line(err)
    assert "cannot be written" in message
    assert "is kept" in message or "are kept" in message
    assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed("bytes"))


def test_comparison_detects_another_seed(finished: Path, tmp_path: Path, text: Path, launch: Launcher) -> None:
    """Another seed changes the losses from the first step, and the model."""
    out = tmp_path / "out"
    assert launch("train", text, "--out", out, *CASES["bytes"], "--seed", 1)[0] == 0
    for ours, theirs in zip(read_metrics(out), read_metrics(finished), strict=True):
        assert ours["loss"] != theirs["loss"]
    assert model_files(out)["model.safetensors"] != model_files(finished)["model.safetensors"]
    assert not np.array_equal(inlayer.load(out).table.weight, inlayer.load(finished).table.weight)
