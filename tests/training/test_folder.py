"""A folder is replaced whole or not at all: whatever fails, and whenever the writer is killed."""

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
from inlayer.training import folder as rooms
from inlayer.training import load_decoder, save_decoder
from inlayer.training.folder import replacing
from tests.training.models import make_decoder, make_ids


def write(place: Path, text: str) -> None:
    with replacing(place) as fresh:
        (fresh / "a.txt").write_text(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(params=["exchange", "two steps"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "two steps":
        monkeypatch.setattr(rooms, "_exchange", lambda *_: False)


# ---- replacing


def test_a_folder_is_made_and_replaced(tmp_path: Path, either_way: None) -> None:
    for text in ("one", "two"):
        write(tmp_path / "new" / "folder", text)
        assert (tmp_path / "new" / "folder" / "a.txt").read_text() == text
        assert names(tmp_path / "new") == ["folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux is known to swap folders")
def test_linux_swaps_in_one_step(tmp_path: Path) -> None:
    for name in ("one", "other"):
        write(tmp_path / name, name)
    assert rooms._exchange(tmp_path / "one", tmp_path / "other")
    assert (tmp_path / "one" / "a.txt").read_text() == "other"
    assert not rooms._exchange(tmp_path / "one", tmp_path / "missing")


def test_a_link_keeps_leading_to_the_folder(tmp_path: Path, either_way: None) -> None:
    write(tmp_path / "real", "one")
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "two"


def test_nothing_is_lost_that_is_not_written_again(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"holds thesis.tex, which would be lost"):
        write(tmp_path, "one")
    assert names(tmp_path) == ["thesis.tex"]
    assert names(tmp_path.parent).count(f".{tmp_path.name}.saving") == 0


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(InputError, match="it is no folder"):
        write(tmp_path / "file", "one")
    with pytest.raises(InputError, match=r"cannot be written: .*what was there before is untouched"):
        write(tmp_path / "file" / "below", "one")
    assert names(tmp_path) == ["file"]


def test_what_a_killed_writer_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".folder.saving").mkdir()
    (tmp_path / ".folder.saving" / "half.txt").write_text("ha")
    write(tmp_path / "folder", "one")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == ["a.txt"]


def test_a_writer_killed_between_two_steps_has_lost_nothing(tmp_path: Path) -> None:
    write(tmp_path / "folder", "one")
    (tmp_path / "folder").rename(tmp_path / ".folder.old")
    with pytest.raises(RuntimeError, match="no luck"), replacing(tmp_path / "folder"):
        raise RuntimeError("no luck")
    assert names(tmp_path) == ["folder"]
    assert (tmp_path / "folder" / "a.txt").read_text() == "one"


# ---- a failure at every stage of saving a decoder


class FullError(OSError):
    def __init__(self) -> None:
        super().__init__(28, "No space left on device")


def fail_writing_files(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(Path, "write_bytes", raiser(error))


def fail_before_weights(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(rooms, "save_file", raiser(error))


def fail_within_weights(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    def half(_: object, path: Path, **__: object) -> None:
        with path.open("wb") as file:
            file.write(b"\x40\0\0\0\0\0\0\0{")
        raise error

    patch.setattr(rooms, "save_file", half)


def fail_reaching_the_disk(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(rooms, "_to_disk", raiser(error))


def fail_before_the_step(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    patch.setattr(rooms, "_put", raiser(error))


def fail_within_two_steps(patch: pytest.MonkeyPatch, error: BaseException) -> None:
    rename = Path.rename

    def rename_or_fail(self: Path, target: Path) -> Path:
        if self.name.endswith(".saving"):
            raise error
        return rename(self, target)

    patch.setattr(rooms, "_exchange", lambda *_: False)
    patch.setattr(Path, "rename", rename_or_fail)


def raiser(error: BaseException) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


STAGES = [
    fail_writing_files,
    fail_before_weights,
    fail_within_weights,
    fail_reaching_the_disk,
    fail_before_the_step,
    fail_within_two_steps,
]


@pytest.mark.parametrize("there", [True, False], ids=["there", "not there"])
@pytest.mark.parametrize("error", [FullError(), KeyboardInterrupt()], ids=["full", "interrupted"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_failure_leaves_what_was_there(
    stage: Any, error: BaseException, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, before, after = tmp_path / "saved", make_decoder("gpt"), make_decoder("llama", seed=4)
    if there:
        save_decoder(before, place)
    with monkeypatch.context() as patch:
        stage(patch, error)
        refusal = "No space left on device; what was there before" if isinstance(error, OSError) else None
        with pytest.raises(InputError if refusal else KeyboardInterrupt, match=refusal):
            save_decoder(after, place)
    assert names(tmp_path) == (["saved"] if there else [])
    if there:
        assert torch.equal(load_decoder(place).eval().logits(make_ids()), before.logits(make_ids()))
    save_decoder(after, place)
    assert torch.equal(load_decoder(place).eval().logits(make_ids()), after.logits(make_ids()))


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of a file, as Linux has it")
def test_a_disk_that_is_really_full_is_an_error_of_one_line(tmp_path: Path) -> None:
    code = f"""
import resource, signal
from inlayer.errors import InputError
from inlayer.training import save_decoder
from tests.training.models import make_decoder
save_decoder(make_decoder("gpt"), {os.fspath(tmp_path / "saved")!r})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))
try:
    save_decoder(make_decoder("gpt", seed=1), {os.fspath(tmp_path / "saved")!r})
except InputError as error:
    print("refused:", error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("refused: ")
    assert "File too large" in done.stdout
    assert done.stdout.count("\n") == 1
    assert names(tmp_path) == ["saved"]
    assert torch.equal(load_decoder(tmp_path / "saved").eval()(make_ids()), make_decoder("gpt")(make_ids()))


# ---- kill -9

SAVING_FOR_EVER = """
import sys, torch
torch.set_num_threads(1)
from inlayer.training import save_decoder
from tests.training.models import make_decoder
decoders = [make_decoder("llama", seed=seed) for seed in (0, 1)]
save_decoder(decoders[1], sys.argv[1])
print("saved", flush=True)
while True:
    for decoder in decoders:
        save_decoder(decoder, sys.argv[1])
"""


def test_a_killed_writer_leaves_a_whole_folder(tmp_path: Path) -> None:
    expected = [make_decoder("llama", seed=seed).logits(make_ids()) for seed in (0, 1)]
    moments = random.Random(0)
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVING_FOR_EVER, os.fspath(tmp_path / "saved")], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer, writer.stdout as said:
            assert said.readline() == "saved\n"
            time.sleep(moments.uniform(0, 0.2))
            writer.kill()
        found = load_decoder(tmp_path / "saved").eval().logits(make_ids())
        assert any(torch.equal(found, one) for one in expected)
        assert set(names(tmp_path)) <= {"saved", ".saved.saving"}
    save_decoder(make_decoder("llama"), tmp_path / "saved")
    assert names(tmp_path) == ["saved"]
