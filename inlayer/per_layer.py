"""Per-layer embeddings (Gemma-3n, Gemma-4): a second table, with a small vector for every token and block.

text -> ids -> rows -> [vectors of each block] -> decoder
- first part: the row of the second table, times sqrt(P), split into L vectors of width P
- second part: the model's input vector, projected to L x P, times 1 / sqrt(D), normalized per layer
- the result is their sum, times 1 / sqrt(2). Gemma-3n rounds the last two factors to the dtype, Gemma-4 does not
- EmbeddingGemma-2 has no second table: its vectors are only the normalized projection
Tested against transformers, in float32 and bfloat16, in tests/families/test_per_layer.py and by `make families`.
"""

from __future__ import annotations

import math
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from inlayer.checks import check_type
from inlayer.families.spec import PerLayerSpec
from inlayer.norms import build_norm
from inlayer.tables import StoredEmbedding, Table
from inlayer.tensors import apply_projection, multiply


class PerLayerEmbedding(nn.Module):
    """The second table with its projection and norm."""

    def __init__(self, spec: PerLayerSpec, n_embd: int, **factory_kwargs: Any) -> None:
        super().__init__()
        check_type(spec, PerLayerSpec, "per_layer")
        self.n_layers, self.width = spec.n_layers, spec.width
        self.recover_ids = not spec.round_factors and spec.rows > 0
        self.round_factors, self.projection_scale = spec.round_factors, n_embd**-0.5
        self.table: Table | StoredEmbedding | None = None
        if spec.rows:
            self.table = Table(spec.rows, spec.n_layers * spec.width, padding_idx=spec.padding_idx, **factory_kwargs)
        self.projection = nn.Linear(n_embd, spec.n_layers * spec.width, bias=False, **factory_kwargs)
        self.norm = build_norm("rmsnorm_fp32", spec.width, spec.norm_eps, **factory_kwargs)

    def forward(self, ids: Int[Tensor, "B T"] | None, embeds: Float[Tensor, "B T D"]) -> Float[Tensor, "B T L P"]:
        """Return the vectors of every block; without ids or a second table, only the projection."""
        scaled = multiply(apply_projection(self.projection, embeds), self.projection_scale, self.round_factors)
        projected: Tensor = self.norm(self._split(scaled))
        if ids is None or self.table is None:
            return projected
        return multiply(projected + self.look_up(ids), 2**-0.5, self.round_factors)

    def look_up(self, ids: Int[Tensor, "B T"]) -> Float[Tensor, "B T L P"]:
        """Return the rows of the second table, scaled and split by layer.

        Gemma-3n has no rows for its image and audio ids.
        """
        assert self.table is not None
        if self.round_factors:
            ids = ids.where((ids >= 0) & (ids < self.table.num_embeddings), 0)
        rows: Tensor = self.table(ids)
        return self._split(multiply(rows, math.sqrt(self.width), rounded=True))

    def _split(self, vectors: Tensor) -> Tensor:
        return vectors.view(*vectors.shape[:-1], self.n_layers, self.width)
