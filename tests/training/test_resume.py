"""`inlayer train` killed with SIGKILL, stopped with Ctrl-C, its state damaged: what --resume makes of it is to the bit
the run that nobody disturbed.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from inlayer.training import load_decoder
from tests.training.launcher import Launcher
from tests.training.texts import write_text

SMALL = ("--n-layer", 1, "--n-embd", 32, "--block-size", 32, "--batch-size", 4)
STEPS = ("--steps", 60, "--save-every", 7, "--validate-every", 10)
CASES: dict[str, tuple[object, ...]] = {
    "bytes": ("--tokenizer", "bytes", "--architecture", "gpt", "--preset", "toy", "--dropout", 0.1, *SMALL, *STEPS),
    "bpe": ("--vocab-size", 300, "--preset", "toy", "--accumulate", 2, "--precision", "bfloat16", *SMALL, *STEPS),
}
COMPARED = ("step", "loss", "validation_loss", "gradient_norm", "learning_rate", "tokens", "output_share", "logit_std")


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


Told = dict[str, Any]
References = Callable[[str], tuple[list[Told], dict[str, bytes]]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, text: Path) -> References:
    """A run that nobody disturbed, as a process that has nothing in common with the others, not even its hashes."""
    made: dict[str, tuple[list[Told], dict[str, bytes]]] = {}

    def find(case: str) -> tuple[list[Told], dict[str, bytes]]:
        if case not in made:
            out = tmp_path_factory.mktemp("undisturbed") / "out"
            env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
            command = [sys.executable, "-m", "inlayer", "train", str(text), "--out", str(out), *map(str, CASES[case])]
            subprocess.run(command, check=True, capture_output=True, env=env)
            made[case] = read_metrics(out), model_files(out)
        return made[case]

    return find


def read_metrics(out: Path) -> list[Told]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{name: line[name] for name in COMPARED if name in line} for line in lines]


def model_files(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in ("model.safetensors", "config.json", "tokenizer.json")}


def count_steps(out: Path) -> int:
    path = out / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def check_same(out: Path, reference: tuple[list[Told], dict[str, bytes]]) -> None:
    metrics, files = reference
    assert [line["step"] for line in metrics] == list(range(1, 61))
    assert sum("validation_loss" in line for line in metrics) == 6
    assert read_metrics(out) == metrics
    assert model_files(out) == files
    assert not [path.name for path in out.rglob(".*")]  # nothing half done is left


def when(reached: Callable[[], bool], number: int, delay: float = 0.0) -> Callable[[int], None]:
    """Send the signal as soon as something is reached."""

    def send(process_id: int) -> None:
        end = time.monotonic() + 60
        while not reached() and time.monotonic() < end:
            time.sleep(0.0005)
        time.sleep(delay)
        with suppress(ProcessLookupError):  # it was faster
            os.kill(process_id, number)

    return send


# ---- kill -9


@pytest.mark.parametrize("case", CASES)
def test_killed_again_and_again_it_ends_as_if_never(
    case: str, tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    out, moments = tmp_path / "out", random.Random(case)
    command = ("train", text, "--out", out, *CASES[case], "--resume")
    steps: list[int] = []
    # While it sets up: at the first sign of it, and as its parts appear.
    for name in (".", "run", "run/tokens", "metrics.jsonl"):
        begun = when((out / name).exists, signal.SIGKILL, moments.uniform(0, 0.005))
        code, err = launch(*command, meanwhile=begun)
        assert (code, "inlayer:" in err) == (-signal.SIGKILL, False), err
        steps.append(count_steps(out))
    # While it takes steps and saves.
    for _ in range(4):
        goal = min(58, count_steps(out) + moments.randrange(2, 16))
        begun = when(lambda goal=goal: count_steps(out) >= goal, signal.SIGKILL, moments.uniform(0, 0.01))
        code, err = launch(*command, meanwhile=begun)
        assert code in {-signal.SIGKILL, 0}, err
        steps.append(count_steps(out))
    assert len(set(steps)) > 3, steps  # it was killed where it should
    if case == "bytes":  # as a process of another kind, with other threads: sums are split up as the run was begun
        env = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONHASHSEED": "9"}
        again = [sys.executable, "-m", "inlayer", "train", "--out", str(out), "--resume"]
        subprocess.run(again, check=True, capture_output=True, env=env)
    else:
        assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed(case))


def test_killed_before_any_change_of_its_folder_it_goes_on(
    tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    """Every file made, moved or removed is a moment: killed right before each of the first ones, and many later ones.

    Each run is killed a second time on its way, too.
    """
    later = random.Random(0).sample(range(25, 140), 4)
    moments = [*range(1, 14), 16, 20, *later]
    killed = 0
    for number in moments:
        out = tmp_path / f"killed-{number}"
        command = ("train", text, "--out", out, *CASES["bytes"], "--resume")
        codes = [launch(*command, kill_at=number, below=out)[0]]
        if number in moments[::6]:
            codes.append(launch(*command, kill_at=number + 3, below=out)[0])
        killed += codes.count(-signal.SIGKILL)
        assert set(codes) <= {-signal.SIGKILL, 0}
        if number % 5 == 0 or number in later:
            assert launch(*command)[0] == 0
            check_same(out, undisturbed("bytes"))
        else:  # of the rest, that it goes on at all
            begun = when(lambda out=out: count_steps(out) > 0, signal.SIGKILL)
            code, err = launch(*command, meanwhile=begun)
            assert code in {-signal.SIGKILL, 0}, err
            assert count_steps(out) > 0
        shutil.rmtree(out)
    assert killed >= len(moments) - 1


def test_a_model_that_is_written_again_is_never_half_there(tmp_path: Path, text: Path, launch: Launcher) -> None:
    """Killed while the last files are written: the folder opens as before, or as after."""
    out = tmp_path / "out"
    command = ("train", text, "--out", out, *CASES["bytes"])
    assert launch(*command)[0] == 0
    before = model_files(out)
    for number in (3, 7, 11, 15):
        code, _ = launch("train", "--out", out, "--resume", kill_at=number, below=out)
        assert code == -signal.SIGKILL
        assert model_files(out) == before
        load_decoder(out)
    assert launch("train", "--out", out, "--resume")[0] == 0
    assert model_files(out) == before


# ---- Ctrl-C


def test_ctrl_c_saves_and_says_how_to_go_on(
    tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    out = tmp_path / "my run"
    command = ("train", text, "--out", out, *CASES["bytes"])
    code, err = launch(*command, meanwhile=when(lambda: count_steps(out) >= 11, signal.SIGINT))
    assert code == 130
    steps = count_steps(out)
    assert 11 <= steps < 60
    assert err.splitlines()[-1] == (f"stopped at step {steps} of 60; go on with: inlayer train --out '{out}' --resume")
    assert "Traceback" not in err
    model = load_decoder(out)  # what was learned so far is a model
    assert model.config.vocab_size == 256
    assert (out / "run" / f"state-{steps:09}.json").exists()
    # SIGTERM, as a machine sends that shuts down, is as good.
    begun = when(lambda: count_steps(out) > steps + 3, signal.SIGTERM)
    code, err = launch("train", "--out", out, "--resume", meanwhile=begun)
    assert code == 130, err
    assert steps + 3 < count_steps(out) < 60
    assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed("bytes"))


def test_ctrl_c_before_the_first_step_says_it_too(tmp_path: Path, launch: Launcher) -> None:
    text = write_text(tmp_path / "long.txt", 60_000)  # it takes a while to train a tokenizer on it
    out = tmp_path / "out"
    stopped = when((out / "run" / "plan.json").exists, signal.SIGINT, 0.05)
    code, err = launch("train", text, "--out", out, *CASES["bpe"], meanwhile=stopped)
    assert code == 130
    assert count_steps(out) == 0
    assert "Traceback" not in err
    assert f"stopped at step 0 of 60; go on with: inlayer train --out {out} --resume" in err


# ---- what it refuses


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, text: Path, launch: Launcher) -> Path:
    out = tmp_path_factory.mktemp("finished") / "out"
    assert launch("train", text, "--out", out, *CASES["bytes"])[0] == 0
    return out


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def complaint(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("inlayer: ")]
    assert err.splitlines()[-1] == line
    return line


def test_a_second_run_into_the_same_folder_is_refused(finished: Path, text: Path, launch: Launcher) -> None:
    before = everything(finished)
    for other in ((), ("--seed", 5)):
        code, err = launch("train", text, "--out", finished, *CASES["bytes"], *other)
        assert code == 2
        assert "a run is there; --resume goes on with it; give another folder" in complaint(err)
    assert everything(finished) == before


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (("--steps", 61), "steps 60, not 61"),
        (("--learning-rate", 0.1), "learning-rate 0.002, not 0.1"),
        (("--dropout", 0.2), "dropout 0.1, not 0.2"),
        (("--tokenizer", "bpe"), "tokenizer bytes, not bpe"),
        (("--no-tie",), "tie True, not False"),
        (("--preset", "small"), "n-embd 32, not 128"),
        (("--seed", 1), "seed 0, not 1"),
        (("--validation", 0.1), "validation 0.05, not 0.1"),
        (("/etc/hostname",), "leave the files out"),
    ],
)
def test_going_on_with_something_else_is_refused(
    other: tuple[object, ...], words: str, finished: Path, launch: Launcher
) -> None:
    before = everything(finished)
    code, err = launch("train", *other, "--out", finished, "--resume")
    assert code == 2
    assert words in complaint(err)
    assert everything(finished) == before


def test_going_on_with_the_same_is_not(finished: Path, text: Path, launch: Launcher) -> None:
    same = ("--positions", "learned", "--n-head", 4, "--tie", "--clip", 1.0, "--n-hidden", 128)
    assert launch("train", text, "--out", finished, *CASES["bytes"], *same, "--resume")[0] == 0


def test_going_on_where_there_is_nothing(tmp_path: Path, launch: Launcher) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for out in (tmp_path, tmp_path / "missing"):
        code, err = launch("train", "--out", out, "--resume")
        assert code == 2
        assert "holds no run that could go on; start one without --resume" in complaint(err)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


# ---- damage


def spoil(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def test_a_damaged_state_is_told_and_its_advice_works(
    finished: Path, tmp_path: Path, launch: Launcher, undisturbed: References
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    spoil(out / "run" / "state-000000060.safetensors")
    code, err = launch("train", "--out", out, "--resume")
    assert code == 2
    said = complaint(err)
    assert "state-000000060.safetensors, the state of step 60, is damaged" in said
    assert "that of step 56 is whole: remove state-000000060.json to go on there" in said
    (out / "run" / "state-000000060.json").unlink()
    assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed("bytes"))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("metrics.jsonl", b"", "has 0 of the 60 steps of the state"),
        ("metrics.jsonl", b"5\n[]\n", "has 0 of the 60 steps"),
        ("metrics.jsonl", b'{"step": 2, "loss": 1, "seconds": 1}\n' * 60, "has 0 of the 60 steps"),
        ("metrics.jsonl", b"\xff\xfe\n" * 60, "has 0 of the 60 steps"),
        ("run/plan.json", b"{}", "plan.json is damaged"),
        ("run/plan.json", b"\0", "plan.json is damaged"),
        ("run/plan.json", b"[" * 100_000, "plan.json is damaged"),
        ("run/tokens/train.bin", b"", "it was cut short or changed"),
        ("run/tokens/tokens.json", b"", "is no valid JSON"),
    ],
)
def test_other_damage_is_one_line_too(
    name: str, data: bytes, words: str, finished: Path, tmp_path: Path, launch: Launcher
) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished, out)
    (out / name).write_bytes(data)
    before = everything(out)
    code, err = launch("train", "--out", out, "--resume")
    assert code == 2
    assert words in complaint(err)
    assert everything(out) == before


# ---- a full disk


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of a file, as Linux has it")
def test_a_full_disk_keeps_the_last_state(
    tmp_path: Path, text: Path, launch: Launcher, undisturbed: References
) -> None:
    out = tmp_path / "out"
    command = ("train", text, "--out", out, *CASES["bytes"])
    launch(*command, meanwhile=when((out / "run" / "state-000000014.json").exists, signal.SIGKILL))
    last = max(path.stem for path in (out / "run").glob("state-*.json"))
    code, err = launch("train", "--out", out, "--resume", file_limit=100_000)
    assert code == 2
    said = complaint(err)
    assert "cannot be written to" in said
    assert "File too large" in said
    assert f"the state of step {int(last.removeprefix('state-'))} is kept" in said
    # A limit that the metrics reach first.
    code, err = launch("train", "--out", out, "--resume", file_limit=(out / "metrics.jsonl").stat().st_size + 300)
    assert code == 2
    said = complaint(err)
    assert "cannot be written" in said
    assert "is kept" in said or "are kept" in said
    assert launch("train", "--out", out, "--resume")[0] == 0
    check_same(out, undisturbed("bytes"))


def test_the_comparison_can_fail(finished: Path, tmp_path: Path, text: Path, launch: Launcher) -> None:
    """Another seed gives other losses from the first step, and another model."""
    out = tmp_path / "out"
    assert launch("train", text, "--out", out, *CASES["bytes"], "--seed", 1)[0] == 0
    for ours, theirs in zip(read_metrics(out), read_metrics(finished), strict=True):
        assert ours["loss"] != theirs["loss"]
    assert model_files(out)["model.safetensors"] != model_files(finished)["model.safetensors"]
    assert not torch.equal(load_decoder(out).head.weight, load_decoder(finished).head.weight)
