"""The exact search against a plain float64 computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from inlayer.errors import InputError, ShapeError
from inlayer.formats.row_file import FileRows
from inlayer.formats.safetensors import read_header
from inlayer.geometry import nearest as module
from inlayer.geometry.nearest import nearest, nearest_to_row, to_float32
from inlayer.tables.stored import StoredTable

V, D = 301, 17


def stored(folder: Path, rows: npt.NDArray[Any]) -> StoredTable:
    path = folder / "table.safetensors"
    save_file({"rows": rows}, path)
    return StoredTable(FileRows.for_tensor(path, read_header(path)["rows"]), rows.shape[1], rows.dtype)


def random_rows(dtype: Any = np.float32, seed: int = 0) -> npt.NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((V, D)).astype(dtype)


def plain(rows: npt.NDArray[Any], query: npt.NDArray[Any], k: int) -> list[tuple[int, float]]:
    """One row at a time, in float64."""
    scores = []
    for token_id, row in enumerate(rows.astype(np.float64)):
        length = np.sqrt((row * row).sum())
        if np.isfinite(length) and length > 0:
            scores.append((float(row @ query / length / np.sqrt((query * query).sum())), token_id))
    scores.sort(key=lambda pair: (-pair[0], pair[1]))
    return [(token_id, score) for score, token_id in scores[:k]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("queries", [1, 3, 20])  # one row at a time, and by BLAS
def test_equals_a_plain_search(tmp_path: Path, dtype: Any, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_VALUES", 10 * D)  # many blocks
    rows, wanted = random_rows(dtype), np.random.default_rng(1).standard_normal((queries, D))
    ids, scores = nearest(stored(tmp_path, rows), wanted, 7)
    for query, found, cosines in zip(wanted, ids, scores, strict=True):
        expected = plain(rows, query, 7)
        assert found.tolist() == [token_id for token_id, _ in expected]
        np.testing.assert_allclose(cosines, [score for _, score in expected], atol=1e-6)
    other, _ = nearest(stored(tmp_path, random_rows(dtype, seed=5)), wanted, 7)
    assert other.tolist() != ids.tolist()  # control


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_result_does_not_depend_on_cores_or_blocks(tmp_path: Path, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.repeat(random_rows()[:43], 7, axis=0)  # many equal cosines
    table, query = stored(tmp_path, rows), random_rows(seed=3)[:1]
    expected = nearest(table, query, 30)[0].tolist()
    monkeypatch.setattr(module, "_cores", lambda: cores)
    monkeypatch.setattr(module, "BLOCK_VALUES", 11 * D)
    assert nearest(table, query, 30)[0].tolist() == expected


def test_rows_without_direction_and_excluded_rows(tmp_path: Path) -> None:
    rows = random_rows()
    rows[0], rows[1, 3], rows[2, 4] = 0, np.nan, np.inf
    allowed = np.zeros(V, bool)
    allowed[:6] = True
    ids, scores = nearest(stored(tmp_path, rows), rows[5:6], 10, allowed=allowed)
    assert sorted(ids[0, :3].tolist()) == [3, 4, 5]
    assert ids[0, 3:].tolist() == [-1] * 7
    assert np.isneginf(scores[0, 3:]).all()
    assert ids[0, 0] == 5


def test_more_neighbors_than_rows(tmp_path: Path) -> None:
    ids, _ = nearest(stored(tmp_path, random_rows()[:4]), random_rows()[:1], 10)
    assert sorted(ids[0].tolist()) == [0, 1, 2, 3]


def test_bfloat16_is_widened_exactly() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16)[None]
    np.testing.assert_array_equal(to_float32(every), every.astype(np.float32))


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (np.zeros((1, D)), InputError, "no direction"),
        (np.full((1, D), np.nan), InputError, "no direction"),
        (np.ones((1, D + 1)), ShapeError, r"expected \(queries, 17\)"),
        (np.ones(D), ShapeError, r"expected \(queries, 17\)"),
    ],
)
def test_invalid_queries(tmp_path: Path, query: npt.NDArray[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nearest(stored(tmp_path, random_rows()), query, 3)


def test_progress_reaches_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_VALUES", 10 * D)
    monkeypatch.setattr(module, "_cores", lambda: 1)
    seen: list[tuple[int, int]] = []
    nearest(stored(tmp_path, random_rows()), random_rows()[:1], 3, progress=lambda *done: seen.append(done))
    assert seen[-1] == (V, V)
    assert seen == sorted(seen)


def test_neighbors_of_a_row_leave_it_out() -> None:
    rows = random_rows()
    rows[3], rows[4, 2] = 0, np.nan
    table = StoredTable.from_array(rows)
    found = nearest_to_row(table, 9, 6)
    expected = plain(rows, rows[9].astype(float), 7)[1:]
    assert [token_id for token_id, _ in found] == [token_id for token_id, _ in expected]
    assert len(nearest_to_row(table, 9, 2 * V)) == V - 3  # itself and the rows without a direction
    assert nearest_to_row(table, 3, 6) == nearest_to_row(table, 4, 6) == nearest_to_row(table, 9, 0) == []
    rows[9] = rows[9, ::-1].copy()
    assert nearest_to_row(StoredTable.from_array(rows), 9, 6) != found  # control
