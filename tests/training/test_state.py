"""The state of a run: two are kept, a damaged one is refused by name, a full disk costs only the state that was new."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from inlayer.errors import CheckpointError, InputError
from inlayer.training.state import find_state, load_state, save_state


def tensors(step: int, size: int = 1000) -> dict[str, Tensor]:
    return {"model.a": torch.full((size,), float(step)), "optimizer.a.step": torch.tensor(float(step))}


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        save_state(folder, step, tensors(step), {"seconds": step / 2})


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check_whole(folder: Path, step: int) -> None:
    found = find_state(folder)
    assert found is not None
    assert found.step == step
    loaded, expected = load_state(found), tensors(step)
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.items())


# ---- what is kept


def test_a_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    save(tmp_path / "deep" / "run", 7)
    found = find_state(tmp_path / "deep" / "run")
    assert found is not None
    assert (found.step, found.facts["seconds"]) == (7, 3.5)
    check_whole(tmp_path / "deep" / "run", 7)


def test_without_a_state_there_is_none(tmp_path: Path) -> None:
    assert find_state(tmp_path) is None
    assert find_state(tmp_path / "missing") is None


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("mine")
    (tmp_path / "state-of-the-art.txt").write_text("mine")
    (tmp_path / ".state-000000001.safetensors.saving").write_text("what a killed writer left")
    (tmp_path / "state-000000002.safetensors").write_text("and one killed before its JSON")
    save(tmp_path, 5, 10, 15)
    assert names(tmp_path) == [
        "plan.json",
        "state-000000010.json",
        "state-000000010.safetensors",
        "state-000000015.json",
        "state-000000015.safetensors",
        "state-of-the-art.txt",
    ]
    check_whole(tmp_path, 15)


def test_steps_are_ordered_as_numbers(tmp_path: Path) -> None:
    save(tmp_path, 999_999_999, 1_000_000_000)
    check_whole(tmp_path, 1_000_000_000)


def test_tensors_without_their_json_do_not_count(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    (tmp_path / "state-000000010.json").unlink()
    check_whole(tmp_path, 5)
    save(tmp_path, 10)
    check_whole(tmp_path, 10)


# ---- damage


def flip_a_bit(folder: Path, step: int) -> None:
    path = folder / f"state-{step:09}.safetensors"
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)


def flip_a_bit_of_the_header(folder: Path, step: int) -> None:
    path = folder / f"state-{step:09}.safetensors"
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


def cut_short(folder: Path, step: int) -> None:
    path = folder / f"state-{step:09}.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lose(folder: Path, step: int) -> None:
    (folder / f"state-{step:09}.safetensors").unlink()


def write_json(text: str) -> Callable[[Path, int], None]:
    def write(folder: Path, step: int) -> None:
        (folder / f"state-{step:09}.json").write_text(text)

    return write


def change_json(**facts: object) -> Callable[[Path, int], None]:
    def change(folder: Path, step: int) -> None:
        path = folder / f"state-{step:09}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))

    return change


DAMAGES: dict[str, tuple[Callable[[Path, int], None], str]] = {
    "bit": (flip_a_bit, "its bytes are not those that were written"),
    "header": (flip_a_bit_of_the_header, "its bytes are not those that were written"),
    "cut": (cut_short, r"it has [\d,]+ bytes, [\d,]+ were written"),
    "lost": (lose, "No such file"),
    "garbage": (write_json("\0\1\2 not JSON"), "state-000000010.json is not what was written"),
    "empty": (write_json(""), "state-000000010.json is not what was written"),
    "deep": (write_json("[" * 100_000), "state-000000010.json is not what was written"),
    "list": (write_json("[1, 2]"), "state-000000010.json is not what was written"),
    "object": (write_json("{}"), "state-000000010.json is not what was written"),
    "step": (change_json(step=9), "state-000000010.json is not what was written"),
    "size": (change_json(size="large"), "state-000000010.json is not what was written"),
    "hash": (change_json(sha256=None), "its bytes are not those that were written"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_state_is_refused_and_the_one_before_is_named(damage: str, tmp_path: Path) -> None:
    spoil, words = DAMAGES[damage]
    save(tmp_path, 5, 10)
    spoil(tmp_path, 10)
    with pytest.raises(CheckpointError, match=words) as refused:
        find_state(tmp_path)
    said = str(refused.value)
    assert f"{tmp_path}/state-000000010.safetensors, the state of step 10, is damaged" in said
    assert said.endswith("that of step 5 is whole: remove state-000000010.json to go on there")
    assert "\n" not in said
    (tmp_path / "state-000000010.json").unlink()  # as advised
    check_whole(tmp_path, 5)
    save(tmp_path, 10)
    check_whole(tmp_path, 10)


def test_where_none_is_whole_it_says_so(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    flip_a_bit(tmp_path, 10)
    cut_short(tmp_path, 5)
    with pytest.raises(CheckpointError, match="no other is whole: train anew into another folder"):
        find_state(tmp_path)


def test_an_older_damaged_one_is_no_concern(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    flip_a_bit(tmp_path, 5)
    check_whole(tmp_path, 10)


def test_what_is_changed_after_it_was_found_is_told(tmp_path: Path) -> None:
    save(tmp_path, 5)
    found = find_state(tmp_path)
    assert found is not None
    cut_short(tmp_path, 5)
    with pytest.raises(CheckpointError, match=r"state-000000005.safetensors is damaged"):
        load_state(found)


# ---- a disk that is full

TOO_LARGE = """
import resource, sys
from pathlib import Path
from inlayer.errors import InputError
from tests.training.test_state import save, tensors
from inlayer.training.state import save_state
folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for step, size in ((5, 10_000), (10, 1_000), (15, 10_000)):
    try:
        save_state(folder, step, tensors(step, size), {})
    except InputError as error:
        print(error)
"""

FULL = """
import sys
from pathlib import Path
from inlayer.errors import InputError
from inlayer.training.state import find_state, load_state, save_state
from tests.training.test_state import check_whole, names, tensors
folder = Path(sys.argv[1])
sizes = [1_000, 1_000, 1_000_000]
for step, size in enumerate(sizes, 1):
    try:
        save_state(folder, step, tensors(step, size), {})
    except InputError as error:
        print(error)
check_whole(folder, 2)
print(*names(folder))
filler = folder / "filler"
try:
    filler.write_bytes(bytes(10**7))
except OSError:
    pass  # now not a byte is left
try:
    save_state(folder, 4, tensors(4), {})
except InputError as error:
    print(error)
check_whole(folder, 2)
filler.unlink()
save_state(folder, 4, tensors(4), {})
check_whole(folder, 4)
print(*names(folder))
"""


def in_python(code: str, *arguments: str, before: tuple[str, ...] = ()) -> list[str]:
    command = [*before, sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(sys.platform != "linux", reason="limits the size of a file, as Linux has it")
def test_a_state_that_cannot_be_written_leaves_the_last(tmp_path: Path) -> None:
    first, third = in_python(TOO_LARGE, os.fspath(tmp_path))
    assert first.startswith(f"the state of step 5 cannot be written to {tmp_path}: ")
    assert first.endswith("; no earlier state was there")
    assert "File too large" in first
    assert third.startswith(f"the state of step 15 cannot be written to {tmp_path}: ")
    assert third.endswith("; the state of step 10 is kept")
    assert names(tmp_path) == ["state-000000010.json", "state-000000010.safetensors"]
    check_whole(tmp_path, 10)


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    """A file system of 200 kB, where one may mount one."""
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    mount = f'mount -t tmpfs -o size=200k none "{tmp_path}" && exec "$@"'
    try:
        able = subprocess.run([*inside, mount, "sh", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip("no file system can be mounted here")
    third, two, fourth, last = in_python(FULL, os.fspath(tmp_path), before=(*inside, mount, "sh"))
    whole = "state-000000001.json state-000000001.safetensors state-000000002.json state-000000002.safetensors"
    assert third.startswith(f"the state of step 3 cannot be written to {tmp_path}: ")
    assert "No space left on device" in third
    assert third.endswith("; the state of step 2 is kept")
    assert two == whole
    assert fourth.startswith("the state of step 4 cannot be written")
    assert last == whole.replace("000000002", "000000004").replace("000000001", "000000002")


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(InputError, match=r"cannot be written to .*: Not a directory; no earlier state was there"):
        save(tmp_path / "file" / "run", 5)


# ---- kill -9

SAVING_FOR_EVER = """
import sys
from pathlib import Path
from tests.training.test_state import save
step = int(sys.argv[2])
while True:
    step += 1
    save(Path(sys.argv[1]), step)
    print("saved", flush=True)
"""


def test_a_killed_writer_leaves_a_whole_state(tmp_path: Path) -> None:
    moments, last = random.Random(0), 0
    for _ in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVING_FOR_EVER, os.fspath(tmp_path), str(last)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer, writer.stdout as said:
            assert said.readline() == "saved\n"
            time.sleep(moments.uniform(0, 0.1))
            writer.kill()
        found = find_state(tmp_path)
        assert found is not None
        assert found.step > last
        check_whole(tmp_path, found.step)
        last = found.step
