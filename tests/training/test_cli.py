"""The `inlayer train` command: flags reach the run, and errors are one line with exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inlayer.training.resumable_run import Run
from tests.training.launcher import Launcher
from tests.training.texts import write_text

SMALL = ("--tokenizer", "bytes", "--preset", "toy", "--n-embd", 32, "--block-size", 24, "--steps", 3)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("corpus") / "text.txt", 300)


@pytest.fixture(scope="module")
def launch() -> Iterator[Launcher]:
    if not hasattr(os, "fork"):
        pytest.skip("processes cannot be forked here")
    launcher = Launcher()
    yield launcher
    launcher.close()


def error_line(err: str) -> str:
    (line,) = [line for line in err.splitlines() if line.startswith("inlayer: ")]
    assert err.splitlines()[-1] == line
    assert "Traceback" not in err
    return line


def test_help_does_not_import_torch() -> None:
    code = "import sys; sys.argv = ['inlayer', 'train', '--help']\nfrom inlayer.cli import main\ntry: main()\n"
    code += "except SystemExit: print('torch' in sys.modules)"
    env = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "False"
    assert "Learning-rate multiplier for the embedding table. [default: 1]" in done.stdout
    assert "--tie" in done.stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no text to train on"),
        (b"\xef\xbb\xbf", "no text to train on"),
        ("Grüße".encode("latin-1"), "UTF-8"),
        (b"too short", "the text has only 9 bytes, but one window has 25 tokens; add more text"),
        (
            b"a cat and a dog, or",
            "only 19 bytes, but one window has 25 tokens; add more text, or use a smaller --block-size",
        ),
        (None, "a corpus consists of text files"),
        ("folder", "is a folder, not a file; a corpus consists of text files"),
    ],
)
def test_bad_text(content: bytes | str | None, words: str, tmp_path: Path, launch: Launcher) -> None:
    path, out = tmp_path / "text.txt", tmp_path / "out"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "folder":
        path.mkdir()
    code, err = launch("train", path, "--out", out, *SMALL)
    assert code == 2
    assert words in error_line(err)
    assert not out.exists()


@pytest.mark.parametrize("tokenizer", [("bytes",), ("bpe", "--vocab-size", 300)])
def test_invalid_bytes_later_in_the_text(tokenizer: tuple[object, ...], tmp_path: Path, launch: Launcher) -> None:
    text, existing = tmp_path / "text.txt", tmp_path / "existing"
    text.write_bytes(b"a cat and a dog\n" * 20_000 + b"\xff")
    existing.mkdir()
    for out in (tmp_path / "a" / "b", existing):
        code, err = launch("train", text, "--out", out, *SMALL, "--tokenizer", *tokenizer)
        assert code == 2
        assert "0xff at offset 320,000" in error_line(err).lower()
    assert not (tmp_path / "a").exists()
    assert list(existing.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gradient-accumulation-steps", 3), "--batch-size 16 is not divisible by --gradient-accumulation-steps 3"),
        (("--lr-schedule", "cosin"), "'cosine', 'linear', 'constant'"),
        (("--n-embd", 30), "--n-embd 30 is not divisible by --n-head 4"),
        (("--learning-rate", "nan"), "--learning-rate is nan"),
        (("--tokenizer", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--steps", "many"), "--steps"),
        (("--unknown",), "unknown"),
        (("--out", ""), "--out is empty"),
        (("--out", "/proc/nothing/here"), "cannot be written: No such file or directory"),
        (("--out", __file__), "cannot start a run in"),
        (("--out", b"/tmp/\xff"), "is not valid UTF-8"),
    ],
)
def test_bad_arguments(arguments: tuple[object, ...], words: str, text: Path, tmp_path: Path, launch: Launcher) -> None:
    out = tmp_path / "out"
    decoded = [os.fsdecode(value) if isinstance(value, bytes) else value for value in arguments]
    code, err = launch("train", text, "--out", out, *SMALL, *decoded)
    assert code == 2
    assert words in error_line(err)
    assert not out.exists()


def test_diverging_run(text: Path, tmp_path: Path, launch: Launcher) -> None:
    code, err = launch("train", text, "--out", tmp_path / "out", *SMALL, "--steps", 60, "--learning-rate", 1e4)
    assert code == 2
    assert "the run diverged" in error_line(err)
    assert "start a new run in another folder with a learning rate below 10000 or more warm-up" in error_line(err)


def test_flags_reach_the_run(text: Path, tmp_path: Path, launch: Launcher) -> None:
    out = tmp_path / "out"
    flags = (
        "--tokenizer", "bytes", "--architecture", "gpt", "--positions", "sinusoidal", "--n-embd", 16, "--n-layer", 1,
        "--n-head", 2, "--n-inner", 24, "--block-size", 8, "--dropout", 0.1, "--no-tie", "--steps", 3, "--batch-size",
        4, "--gradient-accumulation-steps", 2, "--learning-rate", 0.003, "--embedding-lr-scale", 0.5,
        "--head-lr-scale", 0.25, "--weight-decay", 0.2,
        "--embedding-weight-decay", 0.01, "--warmup-steps", 2, "--lr-schedule", "linear", "--max-grad-norm", 0.7,
        "--precision", "bfloat16", "--device", "cpu",
        "--shared-second-moment", "--validation-fraction", 0.2, "--eval-interval", 2, "--save-interval", 2,
        "--seed", 11,
    )  # fmt: skip
    code, err = launch("train", text, "--out", out, *flags, report=True)
    assert code == 0, err
    commands = (("inspect", out), ("walk", "the fox", "--model", out, "--json"))
    assert [launch(*command)[0] for command in commands] == [0, 0]
    config = Run.open(str(out)).config
    expected = {
        "steps": 3, "batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 0.003,
        "embedding_lr_scale": 0.5, "head_lr_scale": 0.25,
        "weight_decay": 0.2, "embedding_weight_decay": 0.01, "warmup_steps": 2, "lr_schedule": "linear",
        "max_grad_norm": 0.7, "seed": 11,
        "precision": "bfloat16", "eval_interval": 2, "save_interval": 2, "shared_second_moment": True,
        "validation_fraction": 0.2,
        "files": (str(text),), "threads": 1, "tie": False,
    }  # fmt: skip
    assert {name: getattr(config, name) for name in expected} == expected
    saved = json.loads((out / "config.json").read_text())
    expected = {"model_type": "gpt2", "tie_word_embeddings": False, "attn_pdrop": 0.1, "n_embd": 16, "n_layer": 1}
    expected |= {"n_head": 2, "n_inner": 24, "n_positions": 8}
    assert {name: saved[name] for name in expected} == expected
    assert saved["inlayer"]["positions"] == "sinusoidal"


@pytest.mark.slow
def test_small_text_and_more_steps(tmp_path: Path, launch: Launcher) -> None:
    """The README is too small for the default vocabulary, but not for validation; the run gets more steps later."""
    out, text = tmp_path / "out", Path(__file__).parents[2] / "README.md"
    code, err = launch("train", text, "--out", out, "--preset", "toy", "--n-embd", 32, "--steps", 2)
    assert code == 0, err
    assert "the vocabulary has " in err
    assert "warning" not in err
    assert "no validation loss" not in err
    code, err = launch("train", "--out", out, "--resume", "--steps", 4)
    assert code == 0, err
    assert "step 4 of 4" in err
    assert "vocabulary" not in err
    assert Run.open(str(out)).config.steps == 4
    code, err = launch("train", "--out", out, "--resume", "--steps", 3)
    assert code == 2
    assert "contains a run with steps 4, not 3" in error_line(err)
