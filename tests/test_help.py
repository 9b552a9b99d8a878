"""Every example in every help text runs as printed, in a folder with the files that it names."""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pydoc_data import topics
from typing import Any

import numpy as np
import pytest
import typer

import inlayer
from inlayer.cli import COMMANDS as MODULES
from inlayer.cli import main
from inlayer.cli.app import app
from inlayer.learn.course import open_course

SAMPLE = Path(inlayer.__file__).parent / "samples" / "default"
ROOT = Path(inlayer.__file__).parents[1]
PROGRAMS = ("inlayer ", "torchrun ")
WHOLE_COURSE = "inlayer learn dev-check"
PROCESSES = ("serve", "train", "watch")  # these run until they are stopped, or use several processes


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for child, subcommand in getattr(command, "commands", {}).items():
        yield from commands(subcommand, f"{name} {child}")


for module in MODULES.values():  # a command joins the app when it is imported
    import_module(f"inlayer.cli.{module}")
COMMANDS = dict(commands(typer.main.get_command(app), "inlayer"))
EXAMPLES = [
    (name, line)
    for name, command in COMMANDS.items()
    for line in (command.epilog or "").splitlines()
    if line.startswith(PROGRAMS)
]


def words_of(line: str) -> list[str]:
    """The arguments of an example as a shell in the current folder would pass them."""
    return [
        path
        for word in shlex.split(line)
        for path in (sorted(glob.glob(word)) if "*" in word else [word])  # noqa: PTH207  # relative, like a shell
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every file that an example names, and a course of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BROWSER", "true")  # the command that does nothing
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("path/to/model", "more", "class/ada", "my", "data"):
        (tmp_path / name).mkdir(parents=True)
    for file in SAMPLE.iterdir():
        shutil.copy(file, tmp_path / "path" / "to" / "model")
    shutil.copy(SAMPLE / "model.safetensors", tmp_path / "path" / "to")
    book = "\n".join(topics.topics.values())  # English text: Python's own reference
    for name, text in (
        ("letter.txt", book[:100]),
        ("book.txt", book[:90_000]),
        ("more/two.txt", book[90_000:120_000]),
        ("pairs.txt", "king queen 9\nseven eight 8\nLondon banana 1\n"),
        ("questions.txt", "king man woman queen\n"),
        ("reviews.csv", "id,review\n1,I love dogs\n"),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
    np.save(tmp_path / "vectors.npy", np.ones((3, 128), np.float32))
    solution = open_course().task("gather").solution
    for name in ("class/ada/gather.py", "my/gather.py", "try2.py"):
        (tmp_path / name).write_text(solution, encoding="utf-8")
    return tmp_path


def solve_task(folder: Path) -> None:
    """Solve the task that the examples name, once it has been started."""
    (folder / "inlayer-course" / "gather.py").write_text(open_course().task("gather").solution, encoding="utf-8")


def test_every_command_has_examples_of_itself() -> None:
    assert len(EXAMPLES) > 60
    for name in COMMANDS:
        own = [line for owner, line in EXAMPLES if owner == name]
        assert own or name == "inlayer", name
        assert all(f"{name} " in f"{line} " for line in own), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_described(name: str) -> None:
    assert [param.name for param in COMMANDS[name].params if not param.help] == []


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "inlayer"])
def test_examples_are_printed_as_written(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    _, shown = run_here([*name.split(), "--help"], capsys, monkeypatch)
    lines, own = [line.strip() for line in shown.splitlines()], [line for owner, line in EXAMPLES if owner == name]
    assert [line for line in lines if line.startswith(PROGRAMS)] == own
    first = lines.index("Examples:") + 1
    assert lines[first : first + len(own)] == own  # without blank lines
    assert max(map(len, own)) <= 78  # one line each on a terminal of 80 columns


def run_here(words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Exit code and output of a command in this process, which has imported torch already."""
    monkeypatch.setattr(sys, "argv", words)
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)  # a question is left unanswered
        with pytest.raises(SystemExit) as stopped:
            main()
    out, error = capsys.readouterr()
    return int(stopped.value.code or 0), out + error


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    list(dict.fromkeys(line for name, line in EXAMPLES if name.split()[-1] not in PROCESSES and line != WHOLE_COURSE)),
)
def test_example_runs(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = []
    if "--in reviews.parquet" in line:
        before.append("inlayer embed reviews.csv --field review --out reviews.parquet")
    if line.startswith("inlayer learn"):
        before.append("inlayer learn next gather")
    if "--import" in line:
        before.append("inlayer learn progress --export progress.json")
    if "solution" in line:  # shown once a task has passed
        before.append("inlayer learn check gather")
    for needed in before:
        assert run_here(needed.split(), capsys, monkeypatch)[0] == 0
        if "learn" in needed:
            solve_task(folder)
    code, output = run_here(words_of(line), capsys, monkeypatch)
    assert code == 0, output
    assert output


def run_process(line: str, **options: Any) -> subprocess.Popen[str]:
    program, *words = words_of(line)
    command = [sys.executable, "-m", *(["torch.distributed.run"] if program == "torchrun" else [program]), *words]
    return subprocess.Popen(command, text=True, encoding="utf-8", stdin=subprocess.DEVNULL, **options)


@pytest.mark.slow
def test_checking_the_whole_course_starts(folder: Path) -> None:
    """It takes a minute, and tests/learn/ does the same: here it is stopped after the first task."""
    assert WHOLE_COURSE in {line for _, line in EXAMPLES}
    with run_process(WHOLE_COURSE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as checking:
        assert checking.stdout is not None
        first = checking.stdout.readline()
        checking.send_signal(signal.SIGINT)
    assert "0 problems" in first
    assert checking.returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for name, line in EXAMPLES if name == "inlayer serve"])
def test_serve_example_runs_until_it_is_stopped(line: str, folder: Path) -> None:
    line = line.replace("--port 8000", "--port 0")  # another program may use 8000
    with run_process(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        address = server.stdout.readline()
        server.send_signal(signal.SIGINT)
        _, error = server.communicate(timeout=300)
    assert "127.0.0.1" in address, error
    assert "Traceback" not in error
    assert server.returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for name, line in EXAMPLES if name == "inlayer train"])
def test_train_example_trains(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As printed, with two steps instead of hundreds."""
    if "--resume" in line:
        before = "inlayer train book.txt --out model --tokenizer bytes --preset toy --steps 2"
        assert run_here(before.split(), capsys, monkeypatch)[0] == 0
        line = line.replace("--steps 900", "--steps 4")
    else:
        line += " --steps 2"
    if line.startswith("torchrun"):
        done = run_process(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = done.communicate(timeout=300)
        code = done.returncode
    else:
        code, output = run_here(words_of(line), capsys, monkeypatch)
    assert code == 0, output
    assert "inlayer walk" in output  # the next command, after the report


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for name, line in EXAMPLES if name == "inlayer learn watch"])
def test_watch_example_ends_when_the_task_passes(
    line: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_here(["inlayer", "learn", "next", "gather"], capsys, monkeypatch)[0] == 0
    solve_task(folder)
    watching = run_process(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    output, _ = watching.communicate(timeout=300)
    assert watching.returncode == 0, output
