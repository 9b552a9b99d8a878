"""Row statistics compared with a plain loop, and undertrained rows found among planted ones."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import inlayer
from inlayer.inspection import scan
from inlayer.inspection.report import MIN_REFERENCES
from inlayer.inspection.scan import RowStatistics, hash_rows, mean_direction, scan_rows
from inlayer.inspection.undertrained import find_undertrained
from inlayer.tables import StoredTable

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def stored(folder: Path, table: Tensor) -> StoredTable:
    save_file({"table": table}, folder / "table.safetensors")
    return inlayer.load(folder / "table.safetensors").table


def unusual_table(width: int = 24) -> Tensor:
    """Ordinary rows, and every kind of unusual row."""
    table = torch.randn(70, width, generator=torch.Generator().manual_seed(0))
    table[3] = 0
    table[5, 2] = float("nan")
    table[7, 1] = float("inf")
    table[8, 0], table[8, 1] = float("nan"), -float("inf")
    table[11] = 0.5
    table[12] = -table[13]
    table[40] = table[20]
    table[60] = table[20]
    table[50:54] = table[30:34]
    table[69] = 0
    return table


def one_by_one(table: Tensor, direction: Tensor | None, ids: list[int]) -> dict[str, list[float]]:
    """The statistics computed by a loop over Python numbers: slow and obvious."""
    found: dict[str, list[float]] = {name: [] for name in ("norm", "nan", "inf", "zero", "constant", "first", "cosine")}
    raw = table.contiguous().view(torch.uint8).view(len(table), -1).tolist()
    seen: dict[tuple[int, ...], int] = {}
    for token_id in ids:
        row = table[token_id].double().tolist()
        norm = math.nan if any(math.isnan(x) for x in row) else math.sqrt(sum(x * x for x in row))
        found["norm"].append(norm)
        found["nan"].append(any(math.isnan(x) for x in row))
        found["inf"].append(any(math.isinf(x) for x in row))
        found["zero"].append(all(x == 0 for x in row))
        found["constant"].append(row[0] != 0 and all(x == row[0] for x in row))
        found["first"].append(seen.setdefault(tuple(raw[token_id]), token_id))
        dot = 0.0 if direction is None else sum(x * y for x, y in zip(row, direction.tolist(), strict=True))
        found["cosine"].append(dot / norm if 0 < norm < math.inf else 0.0)
    return found


def assert_equal_statistics(ours: RowStatistics, theirs: dict[str, list[float]]) -> None:
    np.testing.assert_allclose(ours.norms, theirs["norm"], rtol=1e-5)
    assert ours.has_nan.tolist() == theirs["nan"]
    assert ours.has_inf.tolist() == theirs["inf"]
    assert ours.is_zero.tolist() == theirs["zero"]
    assert ours.is_constant.tolist() == theirs["constant"]
    assert ours.first_equal.tolist() == theirs["first"]
    if ours.cosines is not None:
        np.testing.assert_allclose(ours.cosines, theirs["cosine"], atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("block", [1, 7 * 24, 2**20])
def test_statistics_match_a_plain_loop(
    tmp_path: Path, dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BLOCK_VALUES", block)
    table = unusual_table().to(dtype)
    direction = torch.nn.functional.normalize(torch.randn(24, generator=torch.Generator().manual_seed(1)), dim=0)
    ours = scan_rows(stored(tmp_path, table), None, direction.numpy())
    theirs = one_by_one(table, direction, list(range(70)))
    assert_equal_statistics(ours, theirs)
    finite = table.double()[torch.from_numpy(ours.finite)]
    np.testing.assert_allclose(ours.channel_means, finite.mean(0).numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.channel_energy, finite.square().mean(0).numpy(), rtol=1e-5)
    changed = one_by_one(table.flip(0), direction, list(range(70)))  # control: another row order does not match
    assert not np.allclose(ours.norms, changed["norm"], equal_nan=True)


def test_statistics_of_a_sample_match(tmp_path: Path) -> None:
    table, ids = unusual_table(), [3, 5, 12, 13, 20, 40, 60, 69]
    ours = scan_rows(stored(tmp_path, table), np.array(ids))
    assert_equal_statistics(ours, one_by_one(table, None, ids))
    assert ours.cosines is None


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e30), (torch.float32, 1e-30), (torch.float64, 1e-200)])
def test_huge_and_tiny_values_are_neither_infinite_nor_zero(tmp_path: Path, dtype: torch.dtype, size: float) -> None:
    """Their squares overflow or underflow in float32, the last ones even in float64."""
    table = (torch.randn(20, 16, generator=torch.Generator().manual_seed(0)).double() * size).to(dtype)
    ours = scan_rows(stored(tmp_path, table))
    np.testing.assert_allclose(ours.norms, [math.hypot(*row) for row in table.tolist()], rtol=1e-5)
    assert not (ours.has_nan | ours.has_inf | ours.is_zero).any()


@pytest.mark.parametrize("change", [0.0, 1e-6])
@pytest.mark.parametrize("value", [1.0, 1e17, 1e38, 1e-38])
def test_norms_that_are_equal_or_almost_equal_are_counted(tmp_path: Path, value: float, change: float) -> None:
    table = torch.full((40, 7), value)
    table[3, 2] *= 1 + change
    save_file({"embed_tokens.weight": table}, tmp_path / "model.safetensors")
    assert sum(inlayer.inspect(tmp_path).rows.norm_histogram) == 40


def test_only_rows_with_values_are_duplicates(tmp_path: Path) -> None:
    table = torch.arange(16.0).reshape(8, 2)
    table[1:3], table[3:5], table[6] = float("nan"), 0, table[5]
    assert scan_rows(stored(tmp_path, table)).is_shared.nonzero()[0].tolist() == [5, 6]


def test_row_of_tiny_and_ordinary_values(tmp_path: Path) -> None:
    table = torch.full((2, 16), 1e-30)
    table[1, 3] = 2.0
    np.testing.assert_allclose(scan_rows(stored(tmp_path, table)).norms, [4e-30, 2.0], rtol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_rows_of_any_width_have_a_hash(width: int, dtype: Any) -> None:
    rows = np.arange(20).repeat(width).reshape(20, width).astype(dtype)
    hashes = hash_rows(rows)
    distinct = len({tuple(row) for row in rows.astype(np.float32).tolist()})
    assert len(set(hashes.tolist())) == distinct
    assert hash_rows(rows[3:5]).tolist() == hashes[3:5].tolist()  # independent of the block


def test_rows_with_equal_hashes_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash collision alone never makes a duplicate."""
    monkeypatch.setattr(scan, "hash_rows", lambda rows: np.zeros(len(rows), np.uint64))
    table = unusual_table()
    ours = scan_rows(stored(tmp_path, table[20:50]))
    assert ours.is_duplicate.tolist() == [index == 20 for index in range(30)]  # row 40 repeats row 20


def test_progress_reaches_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BLOCK_VALUES", 24 * 30)
    calls: list[tuple[int, int]] = []
    scan_rows(stored(tmp_path, unusual_table()), progress=lambda done, count: calls.append((done, count)))
    assert calls == [(30, 70), (60, 70), (70, 70)]


def test_mean_direction(tmp_path: Path) -> None:
    table = unusual_table()
    ids = [3, 5, 7, 20, 21, 22]
    units = [(table[token_id] / table[token_id].norm()).double() for token_id in (20, 21, 22)]  # the usable ones
    mean = torch.stack(units).sum(0)
    ours = mean_direction(stored(tmp_path, table), np.array(ids))
    assert ours is not None
    np.testing.assert_allclose(ours, (mean / mean.norm()).numpy(), rtol=1e-6, atol=1e-7)
    assert mean_direction(stored(tmp_path, table), np.array([3, 69])) is None  # zero rows have no direction
    assert mean_direction(stored(tmp_path, table), np.empty(0, np.int64)) is None


# -- undertrained rows --


def planted(kind: str) -> tuple[Tensor, list[int]]:
    """300 ordinary rows, three of them undertrained, and 40 references; `kind` is how references differ."""
    random = torch.Generator().manual_seed(0)
    table = torch.randn(340, 32, generator=random)
    hidden = [10, 100, 200]
    if kind == "short":
        table[[*hidden, *range(300, 340)]] *= 0.1
    elif kind == "aligned":  # ordinary norms, but one direction
        one = torch.randn(32, generator=random)
        table[[*hidden, *range(300, 340)]] = one + 0.2 * torch.randn(43, 32, generator=random)
    return table, hidden if kind != "ordinary" else []


@pytest.mark.parametrize("kind", ["short", "aligned", "ordinary"])
def test_undertrained_rows_resemble_the_references(tmp_path: Path, kind: str) -> None:
    table, hidden = planted(kind)
    file = stored(tmp_path, table)
    is_reference = np.arange(340) >= 300
    statistics = scan_rows(file, None, mean_direction(file, np.flatnonzero(is_reference)))
    found = find_undertrained(statistics, is_reference, ~is_reference)
    rows = np.flatnonzero(found.mask).tolist()
    assert rows == [token_id for token_id in hidden if token_id in rows]  # nothing else
    assert len(rows) >= len(hidden) - 1  # the threshold is a quantile, which one of them may exceed
    assert (found.norm_threshold is not None) == (kind == "short")
    assert (found.cosine_threshold is not None) == (kind == "aligned")
    assert found.n_references == 40


def test_too_few_references_find_nothing(tmp_path: Path) -> None:
    table, _ = planted("short")
    is_reference = np.arange(340) >= 340 - MIN_REFERENCES + 1
    found = find_undertrained(scan_rows(stored(tmp_path, table)), is_reference, ~is_reference)
    assert (found.norm_threshold, found.cosine_threshold, found.mask.any()) == (None, None, False)
