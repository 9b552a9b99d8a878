"""Learned positions: a second table, one row a position, added to the token rows.

text -> ids -> rows -> [positions] -> hidden states -> head
- a position past the table is an error that names both numbers; so is one before it
- `offset`: rows in front that no plain position uses (OPT keeps 2)
Checked in tests/positions/test_learned.py and against transformers in tests/families/.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.errors import ConfigError, PositionRangeError
from inlayer.shapes import check_ids, check_std

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
                f"learned positions of {block_size!r} x {n_embd} with offset {offset}: sizes are 1 or more"
            )
        if padding_idx is not None and not 0 <= padding_idx < block_size + offset:
            raise ConfigError(
                f"padding_idx {padding_idx} is outside the {block_size + offset} rows of learned positions; "
                "does the padding id leave room for block_size?"
            )
        self.block_size, self.offset, self.init_std, self.seed = block_size, offset, check_std(init_std), seed
        super().__init__(block_size + offset, n_embd, padding_idx=padding_idx, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw N(0, init_std) again, with a seed always the same; a padding row is zero afterwards."""
        if self.weight.is_meta:  # no values to draw
            return
        with torch.no_grad():
            if self.seed is None:
                self.weight.normal_(0.0, self.init_std)
            else:
                generator = torch.Generator(self.weight.device).manual_seed(self.seed)
                self.weight.normal_(0.0, self.init_std, generator=generator)
            if self.padding_idx is not None:
                self.weight[self.padding_idx].zero_()

    def forward(self, position_ids: Tensor) -> Float[Tensor, "... D"]:
        rows = check_ids(position_ids, "position_ids").long() + self.offset
        if not torch.compiler.is_compiling() and rows.numel() and not rows.is_meta:
            low, high = (int(end) for end in torch.aminmax(rows))
            if low < 0 or high >= self.num_embeddings:
                bad = (low if low < 0 else high) - self.offset
                raise PositionRangeError(
                    f"position {bad} is outside {-self.offset}..{self.block_size - 1}, as block_size is "
                    f"{self.block_size}; the text is too long, or position_ids came from another scheme"
                )
        return F.embedding(rows, self.weight, self.padding_idx)
