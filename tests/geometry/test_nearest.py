"""The exact search against a plain float64 computation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from inlayer.errors import CheckpointError, InputError, ShapeError
from inlayer.formats.row_reader import LocalFile
from inlayer.formats.safetensors import read_header
from inlayer.geometry import nearest as module
from inlayer.geometry.nearest import nearest, nearest_excluding_self, nearest_to_row, normalized, to_float32
from inlayer.tables.stored_table import StoredTable

V, D = 301, 17


def stored(folder: Path, rows: npt.NDArray[Any]) -> StoredTable:
    path = folder / "table.safetensors"
    save_file({"rows": rows}, path)
    return StoredTable(LocalFile(path).rows_of(read_header(path)["rows"]), rows.shape[1], rows.dtype)


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


@pytest.mark.parametrize("scale", [1e38, 1e-30])
@pytest.mark.parametrize("queries", [1, 20])
def test_rows_whose_squares_overflow_or_underflow(tmp_path: Path, scale: float, queries: int) -> None:
    rows = random_rows() * 0.5
    rows[::3] *= np.float32(scale)
    rows[3], rows[4, 2], rows[6, 5] = 0, np.nan, np.inf
    wanted = np.random.default_rng(1).standard_normal((queries, D))
    for table in (stored(tmp_path, rows), StoredTable.from_array(rows)):
        for query, ids, cosines in zip(wanted, *nearest(table, wanted, V - 3), strict=True):
            expected = plain(rows, query, V)
            assert ids.tolist() == [token_id for token_id, _ in expected]
            np.testing.assert_allclose(cosines, [score for _, score in expected], atol=1e-6)


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_result_does_not_depend_on_cores_or_blocks(tmp_path: Path, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.repeat(random_rows()[:43], 7, axis=0)  # many equal cosines
    table, query = stored(tmp_path, rows), random_rows(seed=3)[:1]
    expected = nearest(table, query, 30)[0].tolist()
    monkeypatch.setattr(module, "core_count", lambda: cores)
    monkeypatch.setattr(module, "BLOCK_VALUES", 11 * D)
    assert nearest(table, query, 30)[0].tolist() == expected


@pytest.mark.parametrize("block", [1, 3, 7, 500])
@pytest.mark.parametrize("k", [1, 4, 300])
def test_best_rows_equal_a_sort_of_all(block: int, k: int) -> None:
    """With many ties, and blocks that are merged at different times."""
    scores_QN = np.random.default_rng(0).integers(-4, 5, (3, 300)).astype(np.float32)
    scores_QN[:, ::17] = -np.inf
    scores_QN[0] = np.sort(scores_QN[0])  # every block is better than the ones before
    best = module.TopRows(3, k)
    for start in range(0, 300, block):
        best.add(np.arange(start, min(start + block, 300)), scores_QN[:, start : start + block])
    ids_QK, best_QK = best.merge()
    order_QN = np.lexsort((np.broadcast_to(np.arange(300), (3, 300)), -scores_QN), axis=1)[:, :k]
    expected_QK = np.take_along_axis(scores_QN, order_QN, 1)
    np.testing.assert_array_equal(best_QK, expected_QK)
    np.testing.assert_array_equal(ids_QK, np.where(np.isneginf(expected_QK), -1, order_QN))


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


def pairs(kind: str) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows of bfloat16 of even width, and queries."""
    rows, queries = np.random.default_rng(2).standard_normal((V, 32)), np.random.default_rng(4).standard_normal((3, 32))
    if kind == "alike":
        rows = 1 + rows / 99
    if kind == "noise":
        rows = rows / 99 + queries[0] + 2 * queries[1]
        rows[:, ::2], queries[:, ::2] = 0, 0
    rows = rows.astype(ml_dtypes.bfloat16)
    if kind == "noise":  # tiny values: their bits enlarge the positive products of one row, the negative of the next
        positive = rows[:, 1::2] * queries[0, 1::2] > 0
        rows[:, ::2][positive == (np.arange(V) % 2 == 0)[:, None]] = np.uint16(0xB000).view(ml_dtypes.bfloat16)
    if kind == "extreme":
        rows[:40] = 0
        rows[40:60, 7], rows[60:80, 8], rows[80:100, 9] = np.nan, np.inf, -np.inf
        for first, scale in ((100, 1e18), (120, 1e19), (140, 1e-20), (160, 1e-38)):  # some squares over- or underflow
            rows[first : first + 20] *= ml_dtypes.bfloat16(scale)
    return rows, queries


@pytest.mark.parametrize("kind", ["random", "alike", "noise", "extreme"])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("k", [1, 10, V])
def test_candidates_contain_every_nearest_row(
    tmp_path: Path, kind: str, queries: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROUGH_VALUES", 100)
    rows, wanted = pairs(kind)
    wanted, allowed = wanted[:queries], np.random.default_rng(5).random(V) < 0.8
    table = stored(tmp_path, rows)
    nearest(table, wanted[:1], k)  # keeps the norms of its rows
    found = nearest(table, wanted, k, allowed=allowed)
    expected = nearest(StoredTable.from_array(rows), wanted, k, allowed=allowed)  # every row exactly
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    if kind == "noise" and k == 10:  # control: without the bound, rows are lost
        monkeypatch.setattr(module, "NOISE", 0.0)
        assert nearest(table, wanted, k, allowed=allowed)[0].tolist() != expected[0].tolist()


def test_few_rows_are_candidates(tmp_path: Path) -> None:
    rows, queries = pairs("random")
    assert len(module.CandidateSearch(rows).candidates(normalized(queries[:1], 32), 3, np.ones(V, bool))) < V / 10


def test_more_neighbors_than_rows(tmp_path: Path) -> None:
    ids, _ = nearest(stored(tmp_path, random_rows()[:4]), random_rows()[:1], 10)
    assert sorted(ids[0].tolist()) == [0, 1, 2, 3]


def test_bfloat16_is_widened_exactly() -> None:
    every = np.arange(2**16, dtype=np.uint16).view(ml_dtypes.bfloat16)[None]
    np.testing.assert_array_equal(to_float32(every), every.astype(np.float32))


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (np.zeros((1, D)), InputError, "zero or not finite"),
        (np.full((1, D), np.nan), InputError, "zero or not finite"),
        (np.ones((1, D + 1)), ShapeError, r"expected \(queries, 17\)"),
        (np.ones(D), ShapeError, r"expected \(queries, 17\)"),
    ],
)
def test_invalid_queries(tmp_path: Path, query: npt.NDArray[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nearest(stored(tmp_path, random_rows()), query, 3)


@pytest.mark.parametrize("rows", [random_rows(), pairs("random")[0]])
def test_progress_reaches_the_end(tmp_path: Path, rows: npt.NDArray[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_VALUES", 10 * D)
    monkeypatch.setattr(module, "ROUGH_VALUES", 10 * D)
    monkeypatch.setattr(module, "core_count", lambda: 1)
    seen: list[tuple[int, int]] = []
    nearest(stored(tmp_path, rows), rows[:1], 3, progress=lambda *done: seen.append(done))
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


def test_nearest_others_leave_out_one_row_each() -> None:
    rows = random_rows()[:8]
    rows[:6], rows[7] = rows[0], 0
    table = StoredTable.from_array(rows)
    ids, scores = nearest_excluding_self(table, [5, 6, 0], np.stack([rows[5], rows[6], rows[6]]), 3)
    assert ids.tolist() == [[0, 1, 2], [0, 1, 2], [6, 1, 2]]  # row 5 is not among its own four nearest
    np.testing.assert_array_equal(scores[0], scores[0, [0, 0, 0]])
    ids, scores = nearest_excluding_self(table, [6], rows[6:7], 20)
    assert ids.tolist() == [[0, 1, 2, 3, 4, 5, -1]]
    assert np.isneginf(scores[0, -1])


def test_file_truncated_between_queries_is_an_error(tmp_path: Path) -> None:
    rows, _ = pairs("random")
    table = stored(tmp_path, rows)
    nearest(table, rows[:1], 3)
    with (tmp_path / "table.safetensors").open("r+b") as file:
        file.truncate(200)
    with pytest.raises(CheckpointError):
        nearest(table, rows[:1], 3)
