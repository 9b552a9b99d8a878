"""Nearest neighbors, compared with a plain loop."""

from __future__ import annotations

import torch

from inlayer.neighbors import nearest


def nearest_by_loop(query: torch.Tensor, table: torch.Tensor, k: int, exclude: int | None) -> list[int]:
    found = []
    for token_id, row in enumerate(table):
        if token_id != exclude and bool(row.any()) and bool(row.isfinite().all()):
            found.append((-torch.nn.functional.cosine_similarity(row, query, dim=0).item(), token_id))
    return [token_id for _, token_id in sorted(found)[:k]]


def test_nearest_matches_a_plain_loop() -> None:
    table = torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
    table[3] = 0
    table[4, 2] = torch.nan
    table[5, 2] = torch.inf
    for size in (1, 7, 50):
        blocks = [(start, table[start : start + size]) for start in range(0, 50, size)]
        for exclude in (None, 9):
            ours = nearest(table[9], blocks, 6, exclude=exclude)
            assert [token_id for token_id, _ in ours] == nearest_by_loop(table[9], table, 6, exclude)
            assert all(-1 <= cosine <= 1 for _, cosine in ours)
    assert nearest(table[9], [(0, table)], 1)[0] == (9, 1.0)
    assert len(nearest(table[9], [(0, table)], 500)) == 47  # three rows have no direction


def test_empty_tables_and_k_zero() -> None:
    assert nearest(torch.ones(3), [], 4) == []
    assert nearest(torch.ones(3), [(0, torch.ones(2, 3))], 0) == []
