"""Rows of remote tables: the same bits as in the local file, from few requests or one download."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inlayer.checkpoint.remote import open_remote, remote_rows, transfer
from inlayer.checkpoint.remote.remote_rows import RemoteRows
from inlayer.errors import CheckpointError
from tests.checkpoint.remote.models import ROWS, SHARDS, TABLE, WIDTH, make_small
from tests.checkpoint.remote.server import Hub

REPO = "org/name"
ROW = WIDTH * 2
IDS = np.array([0, 4095, 7, 7, 8, 2000, 1, 4095])


@pytest.fixture
def local(hub: Hub, tmp_path: Path) -> np.ndarray:
    """The bytes of the table, (ROWS, ROW)."""
    table = make_small(tmp_path / "repo")
    hub.add(REPO, tmp_path / "repo")
    return table


def open_rows(source: str = REPO) -> RemoteRows:
    store = open_remote(source)
    found = store.table(TABLE).source
    assert isinstance(found, RemoteRows)
    return found


def read(source: RemoteRows, ids: Any) -> np.ndarray:
    ids = np.asarray(ids, np.int64)
    out = np.full((len(ids), source.row_bytes), 0xAA, np.uint8)
    source.read(ids, out)
    return out


@pytest.mark.parametrize("source", [REPO, f"hf://{REPO}", f"hf://{REPO}@main/{SHARDS[0]}", "folder URL", "file URL"])
def test_rows_equal_the_local_file_bit_for_bit(hub: Hub, local: np.ndarray, source: str) -> None:
    urls = {"folder URL": "resolve/main", "file URL": f"resolve/main/{SHARDS[0]}"}
    ours = open_rows(f"{hub.endpoint}/{REPO}/{urls[source]}" if source in urls else source)
    assert (ours.rows, ours.row_bytes) == local.shape
    assert np.array_equal(read(ours, IDS), local[IDS])
    assert not np.array_equal(read(ours, IDS), local[IDS[::-1]])  # control
    assert read(ours, []).shape == (0, ROW)
    assert np.array_equal(ours.memory_map(), local)


def test_only_the_requested_rows_are_fetched(hub: Hub, local: np.ndarray) -> None:
    source = open_rows()
    assert not hub.ranges(SHARDS[1])
    hub.reset()
    read(source, IDS)
    spans = [(0, 8), (2000, 2000), (4095, 4095)]  # neighbors in one request, across gaps of a few rows
    expected = [(source.offset + first * ROW, source.offset + (last + 1) * ROW - 1) for first, last in spans]
    assert sorted(hub.ranges(SHARDS[0])) == expected
    assert hub.sent[SHARDS[0]] < 15 * ROW + 5000


def test_many_rows_download_the_table_once(hub: Hub, local: np.ndarray) -> None:
    source, many = open_rows(), np.arange(0, ROWS, 4)
    hub.reset()
    assert np.array_equal(read(source, many), local[many])
    assert hub.ranges(SHARDS[0]) == [(source.offset, source.offset + ROWS * ROW - 1)]
    assert np.array_equal(source.memory_map(), local)
    assert np.array_equal(read(source, IDS), local[IDS])
    assert len(hub.ranges(SHARDS[0])) == 1
    hub.stop()
    assert np.array_equal(open_rows().memory_map(), local)


def test_download_in_blocks(hub: Hub, local: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_rows, "SYNC_BYTES", 100_000)
    source = open_rows()
    hub.reset()
    assert np.array_equal(source.memory_map(), local)
    assert len(hub.ranges(SHARDS[0])) == 21
    assert sum(last - first + 1 for first, last in hub.ranges(SHARDS[0])) == ROWS * ROW  # no byte twice


def test_loop_over_the_table_soon_downloads_it(hub: Hub, local: np.ndarray) -> None:
    source = open_rows()
    hub.reset()
    found = [read(source, range(start, start + 256)) for start in range(0, ROWS, 256)]
    assert np.array_equal(np.concatenate(found), local)
    assert len(hub.ranges(SHARDS[0])) == 3  # two blocks, then everything
    assert hub.sent[SHARDS[0]] < 1.2 * ROWS * ROW


def test_long_runs_of_rows_are_split(hub: Hub, local: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_rows, "MAX_REQUEST", 10 * ROW)
    source = open_rows()
    hub.reset()
    assert np.array_equal(read(source, range(100, 200)), local[100:200])
    assert len(hub.ranges(SHARDS[0])) == 10


@pytest.mark.parametrize("after", [0, 5000])
def test_interrupted_download_resumes(
    hub: Hub, local: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(remote_rows, "SYNC_BYTES", 100_000)
    monkeypatch.setattr(remote_rows, "BLOCKS", 1)
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    source = open_rows()
    hub.fail("cut_connection", SHARDS[0], skip=5, after=after)
    for _ in range(2):
        with pytest.raises(CheckpointError, match="cannot read bytes"):
            source.memory_map()
    assert not list((tmp_path / "huggingface").rglob("*.rows"))
    (part,) = (tmp_path / "huggingface").rglob("*.part")
    assert part.stat().st_size == 500_000
    with part.open("ab") as stream:
        stream.write(b"\0" * 70_000)  # a block that was not on disk yet when the machine lost power
    hub.faults.clear()
    hub.reset()
    assert np.array_equal(open_rows().memory_map(), local)
    assert min(hub.ranges(SHARDS[0]))[0] == source.offset + 500_000
    assert not list((tmp_path / "huggingface").rglob("*.part"))


@pytest.mark.parametrize("kind", ["ignore_range", "shift_range", "short_length", "hang"])
def test_faulty_server_never_leaves_a_partial_table(
    hub: Hub, local: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 0.1)
    source = open_rows()
    hub.fail(kind, SHARDS[0])
    for request in (source.memory_map, lambda: read(source, range(2000)), lambda: read(source, [1])):
        with pytest.raises(CheckpointError, match=r"cannot read bytes .* after 4 attempts"):
            request()
    assert not list((tmp_path / "huggingface").rglob("*.rows"))


def test_table_file_of_the_wrong_size_is_downloaded_again(hub: Hub, local: np.ndarray, tmp_path: Path) -> None:
    open_rows().memory_map()
    (kept,) = (tmp_path / "huggingface").rglob("*.rows")
    os.truncate(kept, 1000)
    assert np.array_equal(open_rows().memory_map(), local)


@pytest.mark.parametrize("byte", [0, ROWS * ROW // 2, -1])
def test_damaged_table_file_is_not_used(hub: Hub, local: np.ndarray, tmp_path: Path, byte: int) -> None:
    open_rows().memory_map()
    (kept,) = (tmp_path / "huggingface").rglob("*.rows")
    data = bytearray(kept.read_bytes())
    data[byte] ^= 1
    kept.write_bytes(data)
    assert np.array_equal(read(open_rows(), IDS), local[IDS])
    assert np.array_equal(open_rows().memory_map(), local)
    hub.reset()
    assert np.array_equal(open_rows().memory_map(), local)  # control: the new file is intact
    assert not hub.ranges(SHARDS[0])


def test_table_without_etag_is_never_reused(
    hub: Hub, local: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_rows, "SYNC_BYTES", 100_000)
    monkeypatch.setattr(remote_rows, "BLOCKS", 1)
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    hub.omit_etag, url = True, f"{hub.endpoint}/{REPO}/resolve/main"
    source = open_rows(url)
    assert np.array_equal(source.memory_map(), local)
    hub.reset()
    assert np.array_equal(source.memory_map(), local)
    assert not hub.requests  # this process has it

    stopped = open_rows(url)
    hub.fail("cut_connection", SHARDS[0], skip=5)
    with pytest.raises(CheckpointError, match="cannot read bytes"):
        stopped.memory_map()
    hub.faults.clear()
    (file,) = (tmp_path / "repo").glob(SHARDS[0])
    data = bytearray(file.read_bytes())
    data[source.offset : source.offset + ROWS * ROW] = (local ^ 1).tobytes()  # replaced by a file of the same size
    file.write_bytes(data)
    for opened in (open_rows(url), stopped):
        assert np.array_equal(opened.memory_map(), local ^ 1)
    assert np.array_equal(read(open_rows(url), IDS), local[IDS] ^ 1)


def test_table_that_cannot_be_written_is_a_clear_error(hub: Hub, local: np.ndarray) -> None:
    source = open_rows()
    folder = source.file.cache.make_folder(source._key(), 0)
    assert folder is not None
    (folder / "table.part").mkdir()
    with pytest.raises(CheckpointError, match="cannot be written: Is a directory"):
        source.memory_map()


def test_without_a_cache_folder_only_rows_are_read(hub: Hub, local: np.ndarray, tmp_path: Path) -> None:
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "assets").write_text("a file in place of a folder")
    source = open_rows()
    assert np.array_equal(read(source, IDS), local[IDS])
    with pytest.raises(CheckpointError, match="the cache folder is not writable; set HF_HOME to a writable folder"):
        source.memory_map()


def test_failed_request_keeps_the_rows_of_the_others(
    hub: Hub, local: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 1)
    source, ids = open_rows(), np.arange(0, 4000, 400)
    hub.fail("status", SHARDS[0], skip=4)
    with pytest.raises(CheckpointError, match="status 500"):
        read(source, ids)
    hub.faults.clear()
    hub.reset()
    assert np.array_equal(read(source, ids), local[ids])
    assert len(hub.ranges(SHARDS[0])) == 6


def test_threads_share_one_table(hub: Hub, local: np.ndarray) -> None:
    source = open_rows()
    wanted = {seed: np.random.default_rng(seed).integers(0, ROWS, 50) for seed in range(6)}
    found: dict[int, np.ndarray] = {}

    def look_up(seed: int) -> None:
        found[seed] = read(source, wanted[seed]) if seed else source.memory_map()[wanted[seed]]

    threads = [threading.Thread(target=look_up, args=(seed,)) for seed in wanted]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[seed], local[ids]) for seed, ids in wanted.items())


SCRIPT = """
import os, sys
import numpy as np
from inlayer.checkpoint.remote import open_remote
source = open_remote("org/name").table("model.embed_tokens.weight").source
def total(ids):
    out = np.empty((len(ids), source.row_bytes), np.uint8)
    source.read(np.array(ids), out)
    return int(out.sum())
if sys.argv[1] == "fork":
    total([1])
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        sys.exit()
print(total(range(0, 4096, 500)), int(source.memory_map().sum()), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["parallel", "fork"])
def test_processes_share_one_cache(hub: Hub, local: np.ndarray, tmp_path: Path, how: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}

    def start(**more: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", SCRIPT, how]
        return subprocess.Popen(
            command, env=environment | more, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    expected = f"{local[::500].sum(dtype=int)} {local.sum(dtype=int)}\n"
    workers = [start() for _ in range(2 if how == "parallel" else 1)]
    assert [worker.communicate(timeout=300) for worker in workers] == [(expected, "")] * len(workers)
    whole = [span for span in hub.ranges(SHARDS[0]) if span[1] - span[0] + 1 == ROWS * ROW]
    assert len(whole) == 1  # the other process waited for it
    hub.reset()
    assert start(HF_HUB_OFFLINE="1").communicate(timeout=300) == (expected, "")
    assert not hub.requests


def test_copies_and_pickles_read_the_same_rows(hub: Hub, local: np.ndarray) -> None:
    source = open_rows()
    for other in (copy.deepcopy(source), pickle.loads(pickle.dumps(source))):
        assert np.array_equal(read(other, IDS), local[IDS])
