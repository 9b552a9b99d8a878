"""Saved training states: two are kept, damage is detected, and a full disk costs only the newest state."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from inlayer.errors import CheckpointError, InputError
from inlayer.training.state import load_state, save_state


def tensors(step: int, size: int = 1000) -> dict[str, Tensor]:
    return {"model.a": torch.full((size,), float(step)), "optimizer.a.step": torch.tensor(float(step))}


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        save_state(folder, step, tensors(step), {})


def file_of(folder: Path, step: int) -> Path:
    return folder / f"state-{step:09}.safetensors"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check_loads(folder: Path, step: int) -> None:
    state = load_state(folder)
    assert state is not None
    assert state[0] == step
    expected = tensors(step)
    assert state[1].keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in state[1].items())


# ---- saving and loading


def test_state_loads_as_saved(tmp_path: Path) -> None:
    assert load_state(tmp_path) is None
    assert load_state(tmp_path / "missing") is None
    save(tmp_path / "deep" / "run", 7)
    check_loads(tmp_path / "deep" / "run", 7)


def test_last_two_states_are_kept(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("mine")
    (tmp_path / "state-of-the-art.safetensors").write_text("mine")
    (tmp_path / ".state-000000001.safetensors.saving").write_text("left by a killed process")
    save(tmp_path, 5, 10, 15)
    kept = ["config.json", "state-000000010.safetensors", "state-000000015.safetensors", "state-of-the-art.safetensors"]
    assert names(tmp_path) == kept
    check_loads(tmp_path, 15)


def test_states_are_ordered_by_number(tmp_path: Path) -> None:
    save(tmp_path, 999_999_999, 1_000_000_000)
    check_loads(tmp_path, 1_000_000_000)


# ---- damage


def flip_bit(at: float) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[int(len(data) * at)] ^= 1
        path.write_bytes(data)

    return flip


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(path: Path) -> None:
    save_file(tensors(10), path)  # valid, but without a checksum


def rename(path: Path) -> None:
    save(path.parent, 11)
    file_of(path.parent, 11).replace(path)


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a value": (flip_bit(0.75), "its checksum does not match"),
    "the header": (flip_bit(0.001), "is damaged"),
    "truncated": (truncate, "is damaged"),
    "empty": (lambda path: path.write_bytes(b"") and None, "is damaged"),
    "no checksum": (overwrite, "its checksum does not match"),
    "another step": (rename, "its checksum does not match"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_reported_with_an_intact_state(name: str, tmp_path: Path) -> None:
    damage, message = DAMAGES[name]
    save(tmp_path, 5)
    save(tmp_path, 10)
    damage(file_of(tmp_path, 10))
    if not file_of(tmp_path, 5).exists():  # a third state was saved
        save(tmp_path / "other", 5)
        file_of(tmp_path / "other", 5).replace(file_of(tmp_path, 5))
    with pytest.raises(CheckpointError, match=message) as raised:
        load_state(tmp_path)
    text = str(raised.value)
    assert f"{file_of(tmp_path, 10)}, the state of step 10, is damaged" in text
    assert text.endswith("the state of step 5 is intact: to resume from it, remove state-000000010.safetensors")
    assert "\n" not in text
    file_of(tmp_path, 10).unlink()  # as advised
    check_loads(tmp_path, 5)
    save(tmp_path, 10)
    check_loads(tmp_path, 10)


def test_no_intact_state(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    flip_bit(0.75)(file_of(tmp_path, 10))
    truncate(file_of(tmp_path, 5))
    with pytest.raises(CheckpointError, match="no other state is intact; start a new run in another folder"):
        load_state(tmp_path)


def test_damage_of_an_older_state_does_not_matter(tmp_path: Path) -> None:
    save(tmp_path, 5, 10)
    truncate(file_of(tmp_path, 5))
    check_loads(tmp_path, 10)


# ---- full disk


@pytest.mark.skipif(sys.platform != "linux", reason="limits the file size the way Linux does")
def test_failed_write_keeps_the_last_state(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(
            InputError, match=r"step 5 cannot be written to .*File too large.*; no earlier state exists"
        ):
            save_state(tmp_path, 5, tensors(5, 10_000), {})
        save_state(tmp_path, 10, tensors(10), {})
        with pytest.raises(InputError, match="; the state of step 10 is kept"):
            save_state(tmp_path, 15, tensors(15, 10_000), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["state-000000010.safetensors"]
    check_loads(tmp_path, 10)


def test_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(InputError, match=r"cannot be written to .*: Not a directory; no earlier state exists"):
        save(tmp_path / "file" / "run", 5)


FULL = """
import sys
from pathlib import Path
from inlayer.errors import InputError
from inlayer.training.state import save_state
from tests.training.test_state import check_loads, tensors
folder = Path(sys.argv[1])
for step, size in enumerate([1_000, 1_000, 1_000_000], 1):
    try:
        save_state(folder, step, tensors(step, size), {})
    except InputError as error:
        print(error)
check_loads(folder, 2)
filler = folder / "filler"
try:
    filler.write_bytes(bytes(10**7))
except OSError:
    pass  # no byte is left
try:
    save_state(folder, 4, tensors(4), {})
except InputError as error:
    print(error)
check_loads(folder, 2)
filler.unlink()
save_state(folder, 4, tensors(4), {})
check_loads(folder, 4)
"""


@pytest.mark.slow
def test_full_file_system(tmp_path: Path) -> None:
    """A file system of 200 kB, if one can be mounted."""
    inside = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
    mount = f'mount -t tmpfs -o size=200k none "{tmp_path}" && exec "$@"'
    try:
        able = subprocess.run([*inside, mount, "sh", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        able = False
    if not able:
        pytest.skip("no file system can be mounted here")
    command = [*inside, mount, "sh", sys.executable, "-c", FULL, os.fspath(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    third, fourth = done.stdout.splitlines()
    assert "No space left on device" in third
    assert third.endswith("; the state of step 2 is kept")
    assert fourth.startswith("the state of step 4 cannot be written")


# ---- kill -9

SAVE_FOREVER = """
import sys
from pathlib import Path
from tests.training.test_state import save
step = int(sys.argv[2])
while True:
    step += 1
    save(Path(sys.argv[1]), step)
    print("saved", flush=True)
"""


@pytest.mark.slow
def test_killed_writer_leaves_an_intact_state(tmp_path: Path) -> None:
    chance, last = random.Random(0), 0
    for _ in range(2):
        writer = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, os.fspath(tmp_path), str(last)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer, writer.stdout as output:
            assert output.readline() == "saved\n"
            time.sleep(chance.uniform(0, 0.1))
            writer.kill()
        state = load_state(tmp_path)
        assert state is not None
        assert state[0] > last
        check_loads(tmp_path, state[0])
        last = state[0]
