"""RowIndex: compared with a plain loop, even if every hash is the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from inlayer.tables import row_index
from inlayer.tables.row_index import RowIndex


def find_one_by_one(table: npt.NDArray[np.uint8], rows: npt.NDArray[np.uint8]) -> list[int]:
    return [next((n for n, one in enumerate(table) if (one == row).all()), -1) for row in rows]


@pytest.mark.parametrize("colliding", [False, True])
def test_equal_to_a_plain_loop(colliding: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if colliding:
        monkeypatch.setattr(row_index, "hash_rows", lambda rows: np.zeros(len(rows), np.uint64))
    random = np.random.default_rng(0)
    table = random.integers(0, 3, (60, 6), np.uint8)
    table[[50, 59]] = table[7]
    wanted = np.concatenate([table[random.permutation(60)], random.integers(0, 3, (40, 6), np.uint8)])
    reads: list[int] = []

    def read(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
        reads.append(len(ids))
        return table[ids]

    index = RowIndex(60, read, 7)
    assert max(reads) == 7
    expected = find_one_by_one(table, wanted)
    assert index.find(wanted).tolist() == expected
    assert -1 in expected  # control: the loop also misses some
    assert index.find(wanted[:0]).tolist() == []
