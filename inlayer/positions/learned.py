"""Learned positions: a second table with one row per position, added to the token rows.

text -> ids -> rows -> [positions] -> hidden states -> head
- a position outside the table is an error that names the position and the range
- `offset`: unused rows at the start of the table (OPT has 2)
Tested in tests/positions/test_learned.py and against transformers in tests/families/.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.errors import ConfigError, PositionRangeError
from inlayer.initialization import init_rows
from inlayer.shapes import check_std
from inlayer.tensors import check_ids, has_no_values

__all__ = ["LearnedPositions"]


class LearnedPositions(nn.Embedding):
    """`block_size` learned rows of width `n_embd`. A subclass of nn.Embedding, so that tools treat it as one."""

    def __init__(
        self,
        block_size: int,
        n_embd: int,
        *,
        offset: int = 0,
        padding_idx: int | None = None,
        init_std: float = 0.02,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if not isinstance(block_size, int) or block_size < 1 or n_embd < 1 or offset < 0:
            raise ConfigError(
                f"learned positions have {block_size!r} rows of width {n_embd} and offset {offset}; rows and width "
                "must be at least 1, the offset at least 0"
            )
        if padding_idx is not None and not 0 <= padding_idx < block_size + offset:
            raise ConfigError(
                f"padding_idx {padding_idx} is outside the {block_size + offset} rows of learned positions; "
                "is block_size too small for this padding id?"
            )
        self.block_size, self.offset, self.init_std, self.seed = block_size, offset, check_std(init_std), seed
        super().__init__(block_size + offset, n_embd, padding_idx=padding_idx, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Initialize all rows from N(0, init_std), reproducibly with a seed, and the padding row with zeros."""
        init_rows(self.weight, "normal", self.init_std, self.seed, self.padding_idx)

    def forward(self, position_ids: Tensor) -> Float[Tensor, "... D"]:
        """One row per position id: position_ids.shape + (D,)."""
        rows = check_ids(position_ids, "position_ids").long() + self.offset
        if not has_no_values(rows) and rows.numel():
            low, high = (int(end) for end in torch.aminmax(rows))
            if low < 0 or high >= self.num_embeddings:
                bad = (low if low < 0 else high) - self.offset
                raise PositionRangeError(
                    f"position {bad} is outside {-self.offset}..{self.block_size - 1}, as block_size is "
                    f"{self.block_size}; the text is too long, or position_ids are for another model"
                )
        return F.embedding(rows, self.weight, self.padding_idx)
