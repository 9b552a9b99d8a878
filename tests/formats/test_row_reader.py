"""FileRows: rows are the bytes of the file, and a file that changes while it is open is an error."""

from __future__ import annotations

import errno
import mmap
import os
import pickle
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from inlayer.errors import CheckpointError, MissingFileError
from inlayer.formats import row_reader
from inlayer.formats.row_reader import FileRows
from inlayer.tables import StoredTable

ROWS, WIDTH, OFFSET = 100, 24, 13


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rows"
    path.write_bytes(os.urandom(OFFSET + ROWS * WIDTH + 5))
    return path


def read(rows: FileRows, ids: list[int]) -> np.ndarray:
    out = np.empty((len(ids), rows.row_bytes), np.uint8)
    rows.read(np.array(ids, np.int64), out)
    return out


@pytest.mark.parametrize("ids", [[], [0], [99], [3, 4, 5, 6], [7, 3, 4, 4, 5, 0, 99], list(range(100)), [9, 8, 7]])
@pytest.mark.parametrize("longest", [7, 1 << 30])
@pytest.mark.parametrize("preadv", [True, False])
def test_rows_are_the_bytes_of_the_file(
    file: Path, ids: list[int], longest: int, preadv: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reader, "MAX_READ", longest)
    if not preadv:
        monkeypatch.delattr(os, "preadv", raising=False)  # as on Windows
    content = file.read_bytes()
    found = read(FileRows(file, OFFSET, ROWS, WIDTH), ids)
    for row, token in zip(found, ids, strict=True):  # slow, obvious
        assert row.tobytes() == content[OFFSET + token * WIDTH : OFFSET + (token + 1) * WIDTH]
    assert np.array_equal(found, FileRows(file, OFFSET, ROWS, WIDTH).memory_map()[ids])
    if ids:  # control: one byte further is another row
        assert not np.array_equal(found, read(FileRows(file, OFFSET + 1, ROWS, WIDTH), ids))


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENOMEM])
def test_rows_that_cannot_be_mapped_are_read(file: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = FileRows(file, OFFSET, ROWS, WIDTH).memory_map()
    monkeypatch.setattr(mmap, "mmap", Mock(side_effect=OSError(number, os.strerror(number))))
    assert np.array_equal(FileRows(file, OFFSET, ROWS, WIDTH).memory_map(), expected)
    monkeypatch.setattr(np, "empty", Mock(side_effect=MemoryError))
    table = StoredTable(FileRows(file, OFFSET, ROWS, WIDTH), WIDTH, np.dtype(np.uint8))
    with pytest.raises(CheckpointError, match="does not fit into the memory of this machine"):
        _ = table.weight


def test_file_too_short_is_an_error(file: Path) -> None:
    with pytest.raises(CheckpointError, match="is 2,418 bytes; its rows end at 2,437: was the download cut"):
        FileRows(file, OFFSET, ROWS + 1, WIDTH)
    with pytest.raises(MissingFileError, match="cannot be opened"):
        FileRows(file.parent / "none", 0, 1, 1)


@pytest.mark.parametrize("how", ["cut", "rewritten", "grown"])
def test_file_modified_while_open_is_an_error(file: Path, how: str) -> None:
    rows = FileRows(file, OFFSET, ROWS, WIDTH)
    read(rows, [50])
    if how == "cut":
        os.truncate(file, OFFSET)
    elif how == "rewritten":
        file.write_bytes(os.urandom(file.stat().st_size))
    else:
        file.write_bytes(file.read_bytes() + b"more")
    for use in (lambda: read(rows, [50]), rows.memory_map):
        with pytest.raises(CheckpointError, match="was modified while it was open"):
            use()


def test_replaced_file_stays_readable(file: Path) -> None:
    rows = FileRows(file, OFFSET, ROWS, WIDTH)
    before = read(rows, [50])
    other = file.with_name("other")
    other.write_bytes(b"short")
    other.replace(file)
    assert np.array_equal(read(rows, [50]), before)
    file.unlink()
    assert np.array_equal(read(rows, [50]), before)


def test_file_truncated_during_a_read_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is truncated after the check, so the read itself must detect it."""
    rows = FileRows(file, OFFSET, ROWS, WIDTH)
    os.truncate(file, OFFSET + WIDTH)
    monkeypatch.setattr(FileRows, "check_unmodified", lambda _: None)
    with pytest.raises(CheckpointError, match="truncated while it was open"):
        read(rows, [50])


def test_pickle_opens_the_file_again(file: Path) -> None:
    rows = FileRows(file, OFFSET, ROWS, WIDTH)
    assert np.array_equal(read(pickle.loads(pickle.dumps(rows)), [1, 5]), read(rows, [1, 5]))
