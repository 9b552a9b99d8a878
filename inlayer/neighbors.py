"""Read-only questions about a table: which rows lie nearest.

rows -> [look]
- nearness is the cosine: the angle between two rows, whatever their lengths
- a table is read block by block, in float32, so that one of any size fits
- a row of zeros (padding) or with a value that is no number points nowhere and is nobody's neighbor
- not here: what a row stands for (text/)
Checked against a plain loop in tests/test_neighbors.py.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["nearest"]

NOWHERE = -2.0  # below every cosine


@torch.no_grad()
def nearest(
    query_D: Float[Tensor, " D"], blocks: Iterable[tuple[int, Tensor]], k: int, *, but: int | None = None
) -> list[tuple[int, float]]:
    """The k rows nearest to the query, the nearest first, as (id, cosine); `but` is left out.

    `blocks` are parts (n, D) of the table, each with the id of its first row.
    """
    query_D = query_D.float()
    best_K, ids_K = query_D.new_empty(0), torch.empty(0, dtype=torch.int64)
    for start, block_ND in blocks:
        rows_ND = block_ND.float()
        cosines_N = (rows_ND @ query_D) / (rows_ND.norm(dim=1) * query_D.norm())
        cosines_N = torch.where(cosines_N.isfinite(), cosines_N, NOWHERE)
        if but is not None and start <= but < start + len(rows_ND):
            cosines_N[but - start] = NOWHERE
        best_K = torch.cat((best_K, cosines_N))
        ids_K = torch.cat((ids_K, torch.arange(start, start + len(rows_ND))))
        best_K, places_K = best_K.topk(min(k, len(best_K)))
        ids_K = ids_K[places_K]
    found = zip(ids_K.tolist(), best_K.clamp(max=1.0).tolist(), strict=True)
    return [(token_id, cosine) for token_id, cosine in found if cosine > NOWHERE]
