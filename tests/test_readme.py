"""The README keeps its word: its commands run, its output is real, its Python works top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inlayer.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(*command: str, cwd: Path = ROOT) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # no make inside a make
    env |= {"COLUMNS": "80", "NO_COLOR": "1", "INLAYER_DATA": str(cwd / "data")}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, encoding="utf-8", env=env, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def trimmed(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def test_it_opens_with_the_two_commands() -> None:
    commands = re.findall(r"^    (make \w+)", README, flags=re.MULTILINE)
    assert commands == ["make run", "make test"]
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")  # the second runs this very test


def test_make_run_installs_what_its_commands_need() -> None:
    named = {extra for extras in re.findall(r"inlayer\[(.+?)\]", README) for extra in extras.split(",")}
    installed = re.search(r"^EXTRAS := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert installed
    assert set(installed[1].split(",")) == named >= {"torch", "web"}


@pytest.mark.slow
def test_make_run_prints_what_it_shows() -> None:
    shown = "\n".join(trimmed(blocks("text")[0]))
    assert len(shown) > 500
    assert shown in "\n".join(trimmed(run("make", "run")))


@pytest.mark.slow
def test_the_other_commands_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "data"))
    commands = re.findall(r"^\$ \.venv/bin/(.+)$", "".join(blocks("console")), flags=re.MULTILINE)
    assert len(commands) == 12
    for command in commands:  # in this process, which has imported torch already
        assert command.startswith("inlayer ")
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        assert (stopped.value.code or 0, bool(out)) == (0, True), err
    assert (tmp_path / "walk.html").read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.slow
def test_the_commands_of_the_table_run_in_this_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(ROOT / "README.md", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INLAYER_DATA", str(tmp_path / "data"))
    commands = re.findall(r"^\| .* \| `(inlayer .+)` \|$", README, flags=re.MULTILINE)
    assert len(commands) == 12
    for command in commands:
        if command == "inlayer serve":  # it runs until Ctrl-C; tests/web/ starts it
            continue
        monkeypatch.setattr(sys, "argv", shlex.split(command))
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        assert (stopped.value.code or 0, bool(out)) == (0, True), (command, err)


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.+?)\)", README)
    assert len(pictures) == 2
    assert all((ROOT / picture).stat().st_size > 1000 for picture in pictures)


@pytest.mark.slow
def test_the_python_runs_top_to_bottom() -> None:
    code = "\n".join(blocks("python"))
    assert code.count("assert ") >= 5  # every snippet shows a result that is checked
    exec(compile(code, "README.md", "exec"), {})
