"""Nearest neighbors in an embedding table, by cosine similarity.

rows -> [neighbors]
- the table is read block by block in float32, so a table of any size fits in memory
- rows of zeros (padding) and rows with NaN or infinity have no direction and are never returned
- elsewhere: what a row stands for (tokenizers/)
Tested against a plain loop in tests/test_neighbors.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["nearest"]

EXCLUDED = -2.0  # below every cosine


@torch.no_grad()
def nearest(
    query_D: Float[Tensor, " D"], blocks: Iterable[tuple[int, Tensor]], k: int, *, exclude: int | None = None
) -> list[tuple[int, float]]:
    """Find the k rows nearest to the query, as (id, cosine), nearest first; the row `exclude` is left out.

    `blocks` are parts (n, D) of the table, each with the id of its first row.
    """
    query_D = query_D.float()
    best_K, ids_K = query_D.new_empty(0), torch.empty(0, dtype=torch.int64)
    for start, block_ND in blocks:
        rows_ND = block_ND.float()
        cosines_N = (rows_ND @ query_D) / (rows_ND.norm(dim=1) * query_D.norm())
        cosines_N = torch.where(cosines_N.isfinite(), cosines_N, EXCLUDED)
        if exclude is not None and start <= exclude < start + len(rows_ND):
            cosines_N[exclude - start] = EXCLUDED
        best_K = torch.cat((best_K, cosines_N))
        ids_K = torch.cat((ids_K, torch.arange(start, start + len(rows_ND))))
        best_K, order_K = best_K.topk(min(k, len(best_K)))
        ids_K = ids_K[order_K]
    found = zip(ids_K.tolist(), best_K.clamp(max=1.0).tolist(), strict=True)
    return [(token_id, cosine) for token_id, cosine in found if cosine > EXCLUDED]
