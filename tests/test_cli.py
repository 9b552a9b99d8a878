"""The command line as a user runs it: good, odd and bad input, piped and not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import inlayer
from inlayer.cli import main
from inlayer.cli.verbs import app


@dataclass
class Done:
    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Done]:
    """The command line in this process: argv in, exit code and both outputs out."""

    def run_here(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["inlayer", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        return Done(int(stopped.value.code or 0), captured.out, captured.err)

    return run_here


Run = Callable[..., Done]


def test_the_verbs_are_frozen() -> None:
    assert [command.callback.__name__ for command in app.registered_commands] == ["walk", "inspect"]


def test_no_argument_shows_help(run: Run) -> None:
    done = run()
    assert done.code == 0
    assert "Usage" in done.out
    assert "walk" in done.out


def test_version(run: Run) -> None:
    assert run("--version").out.strip() == f"inlayer {inlayer.__version__}"


def test_as_a_program_piped() -> None:
    done = subprocess.run([sys.executable, "-m", "inlayer", "walk"], capture_output=True, check=False)
    assert done.returncode == 0
    assert b"\x1b[" not in done.stdout  # no colour
    assert done.stdout.startswith(b"default (sample: ")  # labelled wherever it shows
    assert b"(1, 4, 128)" in done.stdout


def test_bytes_that_are_no_text() -> None:
    done = subprocess.run([sys.executable, "-m", "inlayer", "walk", b"\xff\xfe"], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"inlayer: text holds the lone surrogate")
    assert done.stderr.count(b"\n") == 1


def test_json_is_one_object(run: Run) -> None:
    trace = json.loads(run("walk", "I love dogs", "Hi", "--json", "--tokenizer", "words").out)
    assert trace["shape"] == [2, 3, 8]
    assert [cell["id"] for cell in trace["texts"][0]["cells"]] == [0, 1, 2]
    assert trace["texts"][1]["padding"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nope"], "nope"),
        (["walk", "--nope"], "--nope"),
        (["walk", "--dims", "0"], "--dims"),
        (["walk", "--width", "wide"], "--width"),
        (["walk", "--positions", "up"], "learned"),
        (["walk", "--tokenizer", "no/such/file"], "no/such/file"),
        (["walk", "--tokenizer", "no/such\nfile"], "no/such file"),
        (["walk", "--tokenizer", ""], "path"),
        (["walk", "--model", "no/such"], "no/such"),
        (["walk", "--model", "default", "--width", "4"], "--width is for a newborn table"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Run, arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("inlayer: ")
    assert done.err.count("\n") == 1
    assert says in done.err


@pytest.mark.parametrize("tokenizer", ["bytes", "words"])
@pytest.mark.parametrize("text", ["", " ", "\x00\x7f", "🙂", "a\nb", "مرحبا", "-"])
def test_odd_texts_walk(run: Run, text: str, tokenizer: str) -> None:
    trace = json.loads(run("walk", "--json", "--tokenizer", tokenizer, "--", text).out)
    assert bytes.fromhex(trace["texts"][0]["bytes"]).decode() == text


def test_the_rows_of_a_walk_are_the_models_own(run: Run) -> None:
    model = inlayer.load("default")
    trace = json.loads(run("walk", "I love dogs", "Hi", "--json", "--dims", "128").out)
    assert trace["padding_idx"] == model.embeddings.padding_idx
    for text in trace["texts"]:
        assert [cell["id"] for cell in text["cells"]] == model.tokenizer.encode(text["text"])
        for cell in text["cells"]:
            assert cell["row"] == model.table(torch.tensor([cell["id"]]))[0].tolist()


@pytest.mark.parametrize("columns", ["0", "1", "-5", "wide", "30"])
@pytest.mark.parametrize("verb", ["walk", "inspect"])
def test_terminals_of_no_width(verb: str, columns: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inlayer", verb], capture_output=True, check=False, env=os.environ | {"COLUMNS": columns}
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"sample" in done.stdout


@pytest.mark.parametrize("verb", ["walk", "inspect"])
def test_a_reader_who_leaves_is_no_finding(verb: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "inlayer", verb], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


def test_a_model_without_a_tokenizer_takes_one(run: Run, tmp_path: Path) -> None:
    save_file({"wte.weight": torch.randn(256, 4)}, tmp_path / "model.safetensors")
    source = str(tmp_path / "model.safetensors")
    assert "name one with --tokenizer" in run("walk", "Hi", "--model", source).err
    trace = json.loads(run("walk", "Hi", "--model", source, "--tokenizer", "bytes", "--json").out)
    assert [cell["id"] for cell in trace["texts"][0]["cells"]] == [72, 105]


def test_the_same_seed_gives_the_same_rows(run: Run) -> None:
    first, again, other = (run("walk", "--json", "--seed", seed).out for seed in ("7", "7", "8"))
    assert first == again != other


def test_ctrl_c_leaves_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("inlayer.cli.verbs._walk_model", interrupt)
    assert run("walk") == Done(130, "", "")
