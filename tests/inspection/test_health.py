"""The scan of rows against a plain loop over them, and the search for untrained rows on planted ones."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from inlayer.inspection import health
from inlayer.inspection.health import RowStatistics, hash_rows, mean_direction, scan_rows
from inlayer.inspection.undertrained import MIN_REFERENCES, find_untrained
from inlayer.tables import MappedTable

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


def stored(folder: Path, table: Tensor) -> MappedTable:
    save_file({"table": table}, folder / "table.safetensors")
    return MappedTable(folder / "table.safetensors")


def odd_table(width: int = 24) -> Tensor:
    """Ordinary rows among every odd kind of row."""
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
    """The statistics by a loop in Python numbers: slow and obvious."""
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
        along = 0.0 if direction is None else sum(x * y for x, y in zip(row, direction.tolist(), strict=True))
        found["cosine"].append(along / norm if 0 < norm < math.inf else 0.0)
    return found


def agree(ours: RowStatistics, theirs: dict[str, list[float]]) -> None:
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
def test_every_number_matches_a_loop(
    tmp_path: Path, dtype: torch.dtype, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "BLOCK_VALUES", block)
    table = odd_table().to(dtype)
    direction = torch.nn.functional.normalize(torch.randn(24, generator=torch.Generator().manual_seed(1)), dim=0)
    ours = scan_rows(stored(tmp_path, table), None, direction)
    theirs = one_by_one(table, direction, list(range(70)))
    agree(ours, theirs)
    finite = table[torch.from_numpy(ours.finite)].double()
    np.testing.assert_allclose(ours.channel_means, finite.mean(0).numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours.channel_energy, finite.square().mean(0).numpy(), rtol=1e-5)
    changed = one_by_one(table.flip(0), direction, list(range(70)))  # control: rows in another order do not match
    assert not np.allclose(ours.norms, changed["norm"], equal_nan=True)


def test_a_sample_is_scanned_alike(tmp_path: Path) -> None:
    table, ids = odd_table(), [3, 5, 12, 13, 20, 40, 60, 69]
    ours = scan_rows(stored(tmp_path, table), np.array(ids))
    agree(ours, one_by_one(table, None, ids))
    assert ours.cosines is None


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e30), (torch.float32, 1e-30), (torch.float64, 1e-200)])
def test_huge_and_tiny_values_are_no_infinity_and_no_zero(tmp_path: Path, dtype: torch.dtype, size: float) -> None:
    """Their squares do not fit into float32."""
    table = (torch.randn(20, 16, generator=torch.Generator().manual_seed(0)).double() * size).to(dtype)
    ours = scan_rows(stored(tmp_path, table))
    np.testing.assert_allclose(ours.norms, torch.linalg.vector_norm(table.double(), dim=1).numpy(), rtol=1e-5)
    assert not (ours.has_nan | ours.has_inf | ours.is_zero).any()


def test_a_row_of_tiny_and_usual_values(tmp_path: Path) -> None:
    table = torch.full((2, 16), 1e-30)
    table[1, 3] = 2.0
    np.testing.assert_allclose(scan_rows(stored(tmp_path, table)).norms, [4e-30, 2.0], rtol=1e-5)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_rows_of_any_length_have_a_hash(width: int, dtype: torch.dtype) -> None:
    rows = torch.arange(20).repeat_interleave(width).view(20, width).to(dtype)
    hashes = hash_rows(rows)
    distinct = len({tuple(row) for row in rows.float().tolist()})
    assert len(set(hashes.tolist())) == distinct
    assert hash_rows(rows[3:5]).tolist() == hashes[3:5].tolist()  # no matter which block a row is in


def test_rows_with_one_hash_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash that says nothing gives suspects, never copies."""
    monkeypatch.setattr(health, "hash_rows", lambda rows: np.zeros(len(rows), np.uint64))
    table = odd_table()
    ours = scan_rows(stored(tmp_path, table[20:50]))
    assert ours.is_copy.tolist() == [place == 20 for place in range(30)]  # row 40 repeats row 20


def test_progress_reaches_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "BLOCK_VALUES", 24 * 30)
    told: list[tuple[int, int]] = []
    scan_rows(stored(tmp_path, odd_table()), progress=lambda done, count: told.append((done, count)))
    assert told == [(30, 70), (60, 70), (70, 70)]


def test_the_threads_are_given_back(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    scan_rows(stored(tmp_path, odd_table()))
    assert torch.get_num_threads() == before


def test_mean_direction(tmp_path: Path) -> None:
    table = odd_table()
    ids = [3, 5, 7, 20, 21, 22]
    units = [(table[token_id] / table[token_id].norm()).double() for token_id in (20, 21, 22)]  # the usable ones
    mean = torch.stack(units).sum(0)
    ours = mean_direction(stored(tmp_path, table), np.array(ids))
    assert ours is not None
    torch.testing.assert_close(ours, (mean / mean.norm()).float())
    assert mean_direction(stored(tmp_path, table), np.array([3, 69])) is None  # zero rows point nowhere
    assert mean_direction(stored(tmp_path, table), np.empty(0, np.int64)) is None


# -- untrained rows --


def planted(kind: str) -> tuple[Tensor, list[int]]:
    """300 ordinary rows, three of them untrained, and 40 references; `kind` is how references show."""
    random = torch.Generator().manual_seed(0)
    table = torch.randn(340, 32, generator=random)
    hidden = [10, 100, 200]
    if kind == "short":
        table[[*hidden, *range(300, 340)]] *= 0.1
    elif kind == "alike":  # as long as the others, but in one direction
        one = torch.randn(32, generator=random)
        table[[*hidden, *range(300, 340)]] = one + 0.2 * torch.randn(43, 32, generator=random)
    return table, hidden if kind != "like the others" else []


@pytest.mark.parametrize("kind", ["short", "alike", "like the others"])
def test_untrained_rows_are_those_like_the_references(tmp_path: Path, kind: str) -> None:
    table, hidden = planted(kind)
    rows = stored(tmp_path, table)
    is_reference = np.arange(340) >= 300
    statistics = scan_rows(rows, None, mean_direction(rows, np.flatnonzero(is_reference)))
    found = find_untrained(statistics, is_reference, ~is_reference)
    assert found.rows.tolist() == [token_id for token_id in hidden if token_id in found.rows]  # nothing else
    assert len(found.rows) >= len(hidden) - 1  # the limit is a quantile: one may lie past it
    assert (found.norm_limit is not None) == (kind == "short")
    assert (found.cosine_limit is not None) == (kind == "alike")
    assert found.references == 40


def test_too_few_references_say_nothing(tmp_path: Path) -> None:
    table, _ = planted("short")
    is_reference = np.arange(340) >= 340 - MIN_REFERENCES + 1
    found = find_untrained(scan_rows(stored(tmp_path, table)), is_reference, ~is_reference)
    assert (found.norm_limit, found.cosine_limit, len(found.rows)) == (None, None, 0)
