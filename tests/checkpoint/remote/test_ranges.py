"""What was read of a file is kept, and every way a cache can be spoiled costs no more than a second request."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from inlayer.checkpoint.remote.ranges import DATABASE, RangeCache, RemoteFile, cache_folder
from inlayer.checkpoint.remote.transfer import AbsentError, Facts, Place
from inlayer.errors import CheckpointError
from tests.checkpoint.remote.server import Hub

CONTENT = bytes(range(256)) * 100
FILE = "weights.safetensors"


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> Place:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / FILE).write_bytes(CONTENT)
    return Place(repo_id="org/name", commit=hub.add("org/name", folder), file=FILE)


def open_file(place: Place) -> RemoteFile:
    """As a new process would open it."""
    return RemoteFile(place, RangeCache(cache_folder(place.repo_id, place.commit)))


def test_a_part_is_fetched_once(hub: Hub, place: Place) -> None:
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    hub.forget()
    again = open_file(place)
    assert (again.read(10, 20), again.size) == (CONTENT[10:20], len(CONTENT))
    assert not hub.seen
    assert again.read(10, 21) == CONTENT[10:21]  # control: another part is asked for
    assert hub.ranges(FILE) == [(10, 20)]


def test_kept_parts_need_no_server(hub: Hub, place: Place) -> None:
    open_file(place).read(10, 20)
    hub.stop()
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    with pytest.raises(CheckpointError, match="ConnectError"):
        open_file(place).read(11, 20)


def test_the_size_is_asked_for_if_nothing_was_read(hub: Hub, place: Place) -> None:
    assert open_file(place).size == len(CONTENT)
    assert hub.ranges(FILE) == [(0, 0)]


def test_nothing_is_asked_for_nothing(hub: Hub, place: Place) -> None:
    assert open_file(place).read(5, 5) == b""
    assert not hub.seen


def test_a_file_that_is_not_there_is_asked_for_once(hub: Hub, place: Place) -> None:
    absent = Place(repo_id=place.repo_id, commit=place.commit, file="no.json")
    for _ in range(2):
        with pytest.raises(AbsentError, match="no such file"):
            open_file(absent).read(0, 10)
    assert len(hub.seen) == 1


def test_another_file_under_the_same_commit_is_an_error_the_next_time_too(hub: Hub, place: Place) -> None:
    open_file(place).read(0, 10)
    hub.fail("changes etag", FILE)
    with pytest.raises(CheckpointError, match="changed on the server"):
        open_file(place).read(10, 20)


def spoil_bytes(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def overwrite_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def flip_a_bit(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE ranges SET data = ?", (CONTENT[11:21],))


def change_types(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE ranges SET data = 'text'")


def drop_facts(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM files")


@pytest.mark.parametrize("damage", [spoil_bytes, cut, overwrite_middle, flip_a_bit, change_types, drop_facts])
def test_a_damaged_cache_is_made_anew(hub: Hub, place: Place, damage: Callable[[Path], None]) -> None:
    file = open_file(place)
    file.read(10, 20)
    assert file.cache.folder is not None
    damage(file.cache.folder / DATABASE)
    hub.forget()
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE) == [(10, 19)]
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE) == [(10, 19)]  # and is of use again


def test_without_a_folder_nothing_is_kept_and_everything_works(hub: Hub, place: Place, tmp_path: Path) -> None:
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "assets").write_text("a file where a folder should be")
    assert cache_folder(place.repo_id, place.commit) is None
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE) == [(10, 19)] * 2


def test_a_database_that_cannot_be_written_is_still_read(
    hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file(place).read(10, 20)
    hub.forget()
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda path, **how: connect(f"file:{path}?mode=ro", uri=True, **how))
    assert open_file(place).read(10, 20) == CONTENT[10:20]
    assert not hub.seen
    assert open_file(place).read(20, 30) == CONTENT[20:30]


def test_a_file_on_disk_is_read_there(hub: Hub, place: Place, tmp_path: Path) -> None:
    file = RemoteFile(place, RangeCache(None), tmp_path / "repo" / FILE)
    assert (file.read(10, 20), file.size) == (CONTENT[10:20], len(CONTENT))
    assert not hub.seen
    with pytest.raises(CheckpointError, match="cannot be read: No such file"):
        RemoteFile(place, RangeCache(None), tmp_path / "gone").read(0, 1)


WRITER = """
import sys
from pathlib import Path
from inlayer.checkpoint.remote.ranges import RangeCache
from inlayer.checkpoint.remote.transfer import Facts
cache, number = RangeCache(Path(sys.argv[1])), int(sys.argv[2])
for step in range(12):
    cache.put_facts(f"file {number}", Facts(size=step, etag="e"))
    cache.put("shared", {(step, step + 1): bytes([step]), (1000 * number + step, 0): bytes([number])})
"""


def test_several_processes_and_threads_write_at_once(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    workers = [subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(number)]) for number in (1, 2)]
    cache = RangeCache(folder)

    def write(number: int) -> None:
        for step in range(12):
            cache.put("shared", {(1000 * number + step, 0): bytes([number])})

    threads = [threading.Thread(target=write, args=(number,)) for number in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [worker.wait(60) for worker in workers] == [0, 0]
    assert cache.get_facts("file 1") == cache.get_facts("file 2") == Facts(size=11, etag="e")
    spans = [(1000 * number + step, 0) for number in (1, 2, 3, 4) for step in range(12)]
    assert cache.get("shared", spans) == {span: bytes([span[0] // 1000]) for span in spans}
    assert cache.get("shared", [(step, step + 1) for step in range(13)]) == {
        (step, step + 1): bytes([step]) for step in range(12)
    }
