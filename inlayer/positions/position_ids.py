"""Numbering: which position each token has when the caller does not say.

text -> ids -> rows -> [positions] -> hidden states -> head
- "order": 0, 1, 2, ... whatever the tokens are (GPT-2, BERT, every rotary model)
- "ids": only tokens that are not padding count, read off the ids (RoBERTa, MPNet): padding keeps one number in front
- "mask": the same, read off the attention mask (OPT)
Position ids given by the caller are used as they are: left padding and packed sequences need nothing else.
Checked against transformers in tests/families/, by hand in tests/positions/test_position_ids.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from inlayer.errors import ConfigError

__all__ = ["PositionIdRule"]


@dataclass(frozen=True, kw_only=True)
class PositionIdRule:
    """Real tokens count up from `start`; where padding is skipped, it gets `start - 1`."""

    by: Literal["order", "ids", "mask"] = "order"
    start: int = 0
    padding_idx: int | None = None

    def __post_init__(self) -> None:
        if self.by == "ids" and self.padding_idx is None:
            raise ConfigError("positions numbered by ids need padding_idx, the id that is skipped")

    def number(self, shape: tuple[int, int], device: torch.device, ids: Tensor | None, mask: Tensor | None) -> Tensor:
        """Position ids (B, T), or (1, T) where all texts share them."""
        real: Tensor | None = None
        if self.by == "ids" and ids is not None and self.padding_idx is not None:
            real = ids.ne(self.padding_idx)
        elif self.by == "mask" and mask is not None:
            real = mask.ne(0)
        if real is None:  # by order; also for vectors that come in place of ids: nobody can tell padding from them
            return torch.arange(self.start, self.start + shape[1], device=device)[None]
        return torch.where(real, real.cumsum(dim=1) + (self.start - 1), self.start - 1)
