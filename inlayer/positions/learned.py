"""Learned positions: a second table, one row a position, added to the token rows.

text -> ids -> rows -> [positions] -> hidden states -> head
- a position past the table is an error that names both numbers; so is one before it
- `offset`: rows in front that no plain position uses (OPT keeps 2)
Checked in tests/positions/test_learned.py and against transformers in tests/test_families.py.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inlayer.errors import ConfigError, PositionRangeError
from inlayer.shapes import check_ids

__all__ = ["Learned"]


class Learned(nn.Embedding):
    """`block_size` learned rows of width `n_embd`. A subclass of nn.Embedding, so that tools treat it as one."""

    def __init__(
        self,
        block_size: int,
        n_embd: int,
        *,
        offset: int = 0,
        padding_idx: int | None = None,
        init_std: float = 0.02,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if block_size < 1 or n_embd < 1 or offset < 0:
            raise ConfigError(
                f"learned positions of {block_size} x {n_embd} with offset {offset}: sizes start at 1, the offset at 0"
            )
        self.block_size, self.offset, self.init_std = block_size, offset, init_std
        self._generator = generator
        super().__init__(block_size + offset, n_embd, padding_idx=padding_idx, device=device, dtype=dtype)
        self._generator = None  # only the birth is seeded; a generator does not survive deepcopy or pickle

    def reset_parameters(self) -> None:
        """Draw N(0, init_std) again; a padding row is zero afterwards."""
        with torch.no_grad():
            self.weight.normal_(0.0, self.init_std, generator=self._generator)
            if self.padding_idx is not None:
                self.weight[self.padding_idx].zero_()

    def forward(self, position_ids: Tensor) -> Tensor:
        position_ids = check_ids(position_ids, "position_ids")
        rows = position_ids + self.offset
        if not torch.compiler.is_compiling() and rows.numel() and not rows.is_meta:
            low, high = (int(end) for end in torch.aminmax(rows))
            if low < 0 or high >= self.num_embeddings:
                bad = (low if low < 0 else high) - self.offset
                raise PositionRangeError(
                    f"position {bad} is outside {-self.offset}..{self.block_size - 1}, as block_size is "
                    f"{self.block_size}; the text is too long, or position_ids came from another scheme"
                )
        return F.embedding(rows, self.weight, self.padding_idx)
