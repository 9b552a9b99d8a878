"""Cached ranges: fetched once, bounded, and never worse than a second request."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from inlayer.checkpoint.remote import transfer
from inlayer.checkpoint.remote.source import RemoteFile
from inlayer.checkpoint.remote.transfer import DiskCache, open_cache
from inlayer.errors import CheckpointError, MissingFileError
from tests.checkpoint.remote.server import Hub

CONTENT = bytes(range(256)) * 100
FILE = "weights.safetensors"


@pytest.fixture
def url(hub: Hub, tmp_path: Path) -> str:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / FILE).write_bytes(CONTENT)
    return f"{hub.endpoint}/org/name/resolve/{hub.add('org/name', folder)}/{FILE}"


def open_file(url: str, *, immutable: bool = True) -> RemoteFile:
    """The file as a new process would open it."""
    return RemoteFile(url, "file", open_cache(), hub=immutable)


def test_range_is_fetched_once(hub: Hub, url: str) -> None:
    assert open_file(url).read(10, 20) == CONTENT[10:20]
    hub.reset()
    again = open_file(url)
    assert (again.read(10, 20), again.size) == (CONTENT[10:20], len(CONTENT))
    assert not hub.requests
    assert again.read(10, 21) == CONTENT[10:21]  # control: another range takes a request
    assert hub.ranges(FILE) == [(10, 20)]


@pytest.mark.parametrize("immutable", [True, False])
def test_cached_range_needs_no_server(hub: Hub, url: str, immutable: bool) -> None:
    open_file(url, immutable=immutable).read(10, 20)
    hub.stop()
    assert open_file(url, immutable=immutable).read(10, 20) == CONTENT[10:20]
    with pytest.raises(CheckpointError, match="cannot connect to"):
        open_file(url, immutable=immutable).read(11, 20)


def test_changed_file_is_read_again_and_the_old_range_is_not_used(hub: Hub, url: str, tmp_path: Path) -> None:
    opened = open_file(url, immutable=False)
    assert opened.read(10, 20) == CONTENT[10:20]
    (tmp_path / "repo" / FILE).write_bytes(CONTENT[1:])
    with pytest.raises(CheckpointError, match="changed on the server"):
        opened.read(20, 30)
    assert open_file(url, immutable=False).read(10, 20) == CONTENT[11:21]
    hub.stop()
    assert open_file(url, immutable=False).read(10, 20) == CONTENT[11:21]


def test_changed_file_of_a_commit_is_an_error_in_the_next_process_too(hub: Hub, url: str) -> None:
    open_file(url).read(0, 10)
    hub.fail("change_etag", FILE)
    with pytest.raises(CheckpointError, match="changed on the server"):
        open_file(url).read(10, 20)


def test_file_without_etag_is_not_cached(hub: Hub, url: str) -> None:
    hub.omit_etag = True
    for _ in range(2):
        assert open_file(url, immutable=False).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE).count((10, 19)) == 2


def test_size_takes_one_small_request(hub: Hub, url: str) -> None:
    file = open_file(url)
    assert file.read(5, 5) == b""
    assert not hub.requests
    assert file.size == len(CONTENT)
    assert hub.ranges(FILE) == [(0, 0)]


def test_missing_file_is_remembered(hub: Hub, url: str) -> None:
    for _ in range(2):
        with pytest.raises(MissingFileError, match="file does not exist"):
            open_file(url + ".no").read(0, 10)
    assert len(hub.requests) == 1
    hub.stop()
    with pytest.raises(MissingFileError):
        open_file(url + ".no").read(0, 10)


def test_size_limit_of_small_files(hub: Hub, url: str) -> None:
    assert open_file(url).read_all(len(CONTENT)) == CONTENT
    with pytest.raises(CheckpointError, match="is 25,600 bytes; at most 25,599 are read"):
        open_file(url).read_all(len(CONTENT) - 1)


@pytest.mark.parametrize("damage", [lambda _: b"", lambda data: data[:7], lambda data: data[:4] + b"x" * 10])
def test_damaged_range_is_fetched_again(hub: Hub, url: str, damage: Callable[[bytes], bytes]) -> None:
    file = open_file(url)
    file.read(10, 20)
    (path,) = file.cache.folder.rglob("10-20")
    path.write_bytes(damage(path.read_bytes()))
    hub.reset()
    for _ in range(2):  # usable again after the first time
        assert open_file(url).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE) == [(10, 19)]


def test_everything_works_without_a_cache_folder(hub: Hub, url: str, tmp_path: Path) -> None:
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "assets").write_text("a file in place of a folder")
    assert open_cache().make_folder("key", 0) is None
    for _ in range(2):
        assert open_file(url).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE) == [(10, 19)] * 2


def test_full_disk_only_means_that_nothing_is_kept(hub: Hub, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    for _ in range(2):
        assert open_file(url).read(10, 20) == CONTENT[10:20]
    assert hub.ranges(FILE) == [(10, 19)] * 2


def test_cache_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MAX_CACHE_BYTES", 250)
    (tmp_path / "stray").write_text("not a folder, and more recent than the others")
    for number, name in enumerate("abcd"):
        folder = DiskCache(tmp_path).make_folder(name, 0)
        assert folder is not None
        (folder / "file").write_bytes(bytes(100))
        os.utime(folder, (number, number))
    DiskCache(tmp_path).put("d", {(0, 1): b"x"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "d", "stray"]


@pytest.mark.parametrize("several", [True, False], ids=["folders", "one folder"])
def test_cache_is_bounded_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool) -> None:
    monkeypatch.setattr(transfer, "MAX_CACHE_BYTES", 2000)
    cache, largest = DiskCache(tmp_path), 0
    for number in range(300):
        name = f"{number if several else 0}"
        if number % 3 or not several:
            cache.put(name, {(number, number + 1): bytes(95)})
        else:
            folder = cache.make_folder(name, 300)
            assert folder is not None
            (folder / "table.rows").write_bytes(bytes(300))
        os.utime(tmp_path / name, (number, number))
        largest = max(largest, sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file()))
        assert (tmp_path / name).is_dir()
    assert 1000 < largest <= 2000


def test_cache_is_not_searched_at_each_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    searches = 0

    def trim(self: DiskCache, kept: Path | None, nbytes: int) -> None:
        nonlocal searches
        searches += 1
        original(self, kept, nbytes)

    original = DiskCache._trim
    monkeypatch.setattr(DiskCache, "_trim", trim)
    cache = DiskCache(tmp_path)
    for number in range(100):
        cache.put("key", {(number, number + 1): b"x"})
    assert searches == 1


WRITER = """
import sys
from pathlib import Path
from inlayer.checkpoint.remote.transfer import DiskCache
cache, number = DiskCache(Path(sys.argv[1])), int(sys.argv[2])
for step in range(12):
    cache.save(f"file {number}", step)
    cache.put("shared", {(step, step + 1): bytes([step]), (1000 * number + step, 0): bytes([number])})
"""


@pytest.mark.slow
def test_processes_and_threads_write_concurrently(tmp_path: Path) -> None:
    workers = [subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path), str(number)]) for number in (1, 2)]
    cache = DiskCache(tmp_path)

    def write(number: int) -> None:
        for step in range(12):
            cache.put("shared", {(1000 * number + step, 0): bytes([number])})

    threads = [threading.Thread(target=write, args=(number,)) for number in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [worker.wait(100) for worker in workers] == [0, 0]
    assert cache.load("file 1") == cache.load("file 2") == 11
    spans = [(1000 * number + step, 0) for number in (1, 2, 3, 4) for step in range(12)]
    assert cache.get("shared", spans) == {span: bytes([span[0] // 1000]) for span in spans}
    assert len(cache.get("shared", [(step, step + 1) for step in range(13)])) == 12
