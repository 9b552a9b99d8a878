"""Folders are replaced atomically, whatever fails and whenever the writer is killed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from inlayer.errors import InputError
from inlayer.training import atomic_folder as module
from inlayer.training.atomic_folder import replace_folder
from inlayer.training.save import load_decoder, save_decoder
from tests.training.models import make_decoder, make_ids


def write(target: Path, text: str) -> None:
    with replace_folder(target) as new:
        (new / "a.txt").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["exchange", "two renames"])
def with_and_without_exchange(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two renames":
        monkeypatch.setattr(module, "_exchange", lambda *_: False)


# ---- replacing


def test_folder_is_created_and_replaced(tmp_path: Path, with_and_without_exchange: None) -> None:
    for text in ("one", "two"):
        write(tmp_path / "new" / "folder", text)
        assert (tmp_path / "new" / "folder" / "a.txt").read_text() == text
        assert names(tmp_path / "new") == ["folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux swaps folders")
def test_linux_swaps_folders(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, name)
    assert module._exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "a.txt").read_text() == "other"
    assert not module._exchange(tmp_path / "one", tmp_path / "missing")


def test_link_still_points_to_the_folder(tmp_path: Path, with_and_without_exchange: None) -> None:
    write(tmp_path / "real", "one")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "two"


def test_other_files_are_not_lost(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"contains thesis.tex, which would be lost"):
        write(tmp_path, "one")
    assert names(tmp_path) == ["thesis.tex"]
    assert names(tmp_path.parent).count(f".{tmp_path.name}.saving") == 0


def test_target_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(InputError, match="it is not a folder"):
        write(tmp_path / "file", "one")
    with pytest.raises(InputError, match=r"cannot be written: .*the previous contents are unchanged"):
        write(tmp_path / "file" / "below", "one")
    assert names(tmp_path) == ["file"]


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".folder.saving").mkdir()
    (tmp_path / ".folder.saving" / "half.txt").write_text("ha")
    write(tmp_path / "folder", "one")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["a.txt"]


def test_writer_killed_between_two_renames(tmp_path: Path) -> None:
    write(tmp_path / "folder", "one")
    (tmp_path / "folder").rename(tmp_path / ".folder.old")
    with pytest.raises(RuntimeError, match="no luck"), replace_folder(tmp_path / "folder"):
        raise RuntimeError("no luck")
    assert names(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "a.txt").read_text() == "one"


# ---- failures at every stage of saving a decoder


class FullError(OSError):
    def __init__(self) -> None:
        super().__init__(28, "No space left on device")


def fail_writing_files(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(Path, "write_bytes", raiser(error))


def fail_before_weights(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(module, "save_file", raiser(error))


def fail_within_weights(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    def half(_: object, path: Path, **__: object) -> None:
        with path.open("wb") as file:
            file.write(b"\x40\0\0\0\0\0\0\0{")
        raise error

    patch.setattr(module, "save_file", half)


def fail_syncing(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(module, "_sync_all", raiser(error))


def fail_before_swapping(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(module, "_swap_in", raiser(error))


def fail_between_renames(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    rename = Path.rename

    def rename_or_fail(self: Path, target: Path) -> Path:
        if self.name.endswith(".saving"):
            raise error
        return rename(self, target)

    patch.setattr(module, "_exchange", lambda *_: False)
    patch.setattr(Path, "rename", rename_or_fail)


def raiser(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


STAGES = [
    fail_writing_files,
    fail_before_weights,
    fail_within_weights,
    fail_syncing,
    fail_before_swapping,
    fail_between_renames,
]


@pytest.mark.parametrize("stage", STAGES)
def test_failure_keeps_the_previous_folder(stage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a previous folder, on a full disk and on Ctrl-C, in alternation."""
    number = STAGES.index(stage)
    for error, exists in ((FullError(), number % 2 == 0), (KeyboardInterrupt(), number % 2 == 1)):
        check_failure(stage, error, exists, tmp_path / type(error).__name__, monkeypatch)


def check_failure(
    stage: Any, error: BaseException, exists: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    target, before, after = folder / "saved", make_decoder("gpt"), make_decoder("llama", seed=4)
    if exists:
        save_decoder(before, target)
    with monkeypatch.context() as patch:
        stage(patch, error)
        message = "No space left on device; the previous contents" if isinstance(error, OSError) else None
        with pytest.raises(InputError if message else KeyboardInterrupt, match=message):
            save_decoder(after, target)
    assert names(folder) == (["saved"] if exists else [])
    if exists:
        assert torch.equal(load_decoder(target).eval().logits(make_ids()), before.logits(make_ids()))
    save_decoder(after, target)
    assert torch.equal(load_decoder(target).eval().logits(make_ids()), after.logits(make_ids()))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the file size the way Linux does")
@pytest.mark.slow
def test_full_disk_is_reported_in_one_line(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from inlayer.errors import InputError
from inlayer.training.save import save_decoder
from tests.training.models import make_decoder
save_decoder(make_decoder("gpt"), {os.fspath(tmp_path / "saved")!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    save_decoder(make_decoder("gpt", seed=1), {os.fspath(tmp_path / "saved")!r})
except InputError as error:
    print("error:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("error: ")
    assert "File too large" in done.stdout
    assert done.stdout.count("\n") == 1
    assert names(tmp_path) == ["saved"]
    assert torch.equal(load_decoder(tmp_path / "saved").eval()(make_ids()), make_decoder("gpt")(make_ids()))


# ---- kill -9

SAVE_FOREVER = """
import sys, torch
torch.set_num_threads(1)
from inlayer.training.save import save_decoder
from tests.training.models import make_decoder
decoders = [make_decoder("llama", seed=seed) for seed in (0, 1)]
save_decoder(decoders[1], sys.argv[1])
print("saved", flush=True)
while True:
    for decoder in decoders:
        save_decoder(decoder, sys.argv[1])
"""


@pytest.mark.slow
def test_killed_writer_leaves_an_intact_folder(tmp_path: Path) -> None:
    expected = [make_decoder("llama", seed=seed).logits(make_ids()) for seed in (0, 1)]
    chance = random.Random(0)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, os.fspath(tmp_path / "saved")], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer, writer.stdout as output:
            assert output.readline() == "saved\n"
            time.sleep(chance.uniform(0, 0.2))
            writer.kill()
        found = load_decoder(tmp_path / "saved").eval().logits(make_ids())
        assert any(torch.equal(found, one) for one in expected)
        assert set(names(tmp_path)) <= {"saved", ".saved.saving"}
    save_decoder(make_decoder("llama"), tmp_path / "saved")
    assert names(tmp_path) == ["saved"]
