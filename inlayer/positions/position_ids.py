"""Position ids: the position of each token if the caller does not pass position_ids.

text -> ids -> rows -> [positions] -> hidden states -> head
- the rule is a setting of the family (families/spec.py, PositionIdRule)
- position ids from the caller are used unchanged: left padding and packed sequences need nothing else
Tested against transformers in tests/families/, and against written-out cases in tests/positions/test_position_ids.py.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.families.spec import PositionIdRule

__all__ = ["make_position_ids"]


def make_position_ids(
    rule: PositionIdRule, shape: tuple[int, int], device: torch.device, ids: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Position ids (B, T), or (1, T) if they are the same for all texts."""
    real: Tensor | None = None
    if rule.by == "ids" and ids is not None and rule.padding_idx is not None:
        real = ids.ne(rule.padding_idx)
    elif rule.by == "mask" and mask is not None:
        real = mask.ne(0)
    if real is None:  # also for inputs_embeds, where padding cannot be recognized
        return torch.arange(rule.start, rule.start + shape[1], device=device)[None]
    return torch.where(real, real.cumsum(dim=1) + (rule.start - 1), rule.start - 1)
