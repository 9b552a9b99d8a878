"""Folders are written whole or not at all, whatever fails and whenever the writer is killed."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inlayer import files as module
from inlayer.errors import InputError
from inlayer.files import new_folder


def write(target: Path, text: str) -> None:
    with new_folder(target) as new:
        (new / "a.txt").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_folder_is_created(tmp_path: Path) -> None:
    write(tmp_path / "new" / "folder", "one")
    assert (tmp_path / "new" / "folder" / "a.txt").read_text() == "one"
    assert names(tmp_path / "new") == ["folder"]
    write(tmp_path / ("x" * 255), "one")
    assert names(tmp_path / ("x" * 255)) == ["a.txt"]
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", "one")
    assert names(tmp_path / "empty") == ["a.txt"]


def test_other_files_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    for target in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(InputError, match=r"cannot be written: it already exists; choose another folder"):
            write(target, "one")
    with pytest.raises(InputError, match=r"cannot be written: Not a directory"):
        write(tmp_path / "thesis.tex" / "below", "one")
    assert names(tmp_path) == ["thesis.tex"]
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".folder.saving").mkdir()
    (tmp_path / ".folder.saving" / "half.txt").write_text("ha")
    write(tmp_path / "folder", "one")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["a.txt"]


# ---- failures at every stage


class FullError(OSError):
    def __init__(self) -> None:
        super().__init__(28, "No space left on device")


def raiser(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("error", [FullError(), KeyboardInterrupt()], ids=["full disk", "Ctrl-C"])
@pytest.mark.parametrize("stage", ["write_text", "sync", "rename"])
def test_failure_leaves_nothing(
    stage: str, error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module if stage == "sync" else Path, stage, raiser(error))
        message = "folder cannot be written: No space left on device" if isinstance(error, OSError) else None
        with pytest.raises(InputError if message else KeyboardInterrupt, match=message):
            write(tmp_path / "folder", "one")
    assert names(tmp_path) == []
    write(tmp_path / "folder", "one")


# ---- kill -9

WRITE_FOREVER = """
import itertools, pathlib, sys
from inlayer.files import new_folder
for number in itertools.count():
    with new_folder(pathlib.Path(sys.argv[1], str(number))) as new:
        for name in "abcdefgh":
            (new / name).write_text(name * 1000)
    print("written", flush=True)
"""


@pytest.mark.slow
def test_killed_writer_leaves_whole_folders(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITE_FOREVER, os.fspath(tmp_path)]
    for _ in range(3):
        shutil.rmtree(tmp_path)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            for _ in range(random.Random(0).randint(1, 9)):
                assert writer.stdout.readline() == "written\n"
            writer.kill()
        found = [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
        assert found
        for path in found:
            assert {file.name: file.read_text() for file in path.iterdir()} == {
                name: name * 1000 for name in "abcdefgh"
            }
