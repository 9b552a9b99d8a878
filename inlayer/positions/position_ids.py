"""Position ids: the position of each token if the caller does not pass position_ids.

text -> ids -> rows -> [positions] -> hidden states -> head
- the rule is a setting of the family (families/spec.py, PositionIdRule)
- position ids from the caller are used unchanged: left padding and packed sequences need nothing else
Tested against transformers in tests/families/, and against written-out cases in tests/positions/test_position_ids.py.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from inlayer.errors import ShapeError
from inlayer.families.spec import PositionIdRule
from inlayer.tensors import has_no_values

__all__ = ["make_position_ids", "position_ids_from_mask"]

LEFT_PADDED = (
    "attention_mask has padding on the left, but positions count from the first column; pass "
    "position_ids=inlayer.position_ids_from_mask(attention_mask)"
)


def position_ids_from_mask(attention_mask: Tensor) -> Tensor:
    """Position ids that skip padding: the first real token of each text is at position 0.

    A batch that is padded on the left needs them wherever positions are absolute or rotary.

    Args:
        attention_mask: (B, T), 1 or true for real tokens.

    Returns:
        Position ids (B, T) int64; padding tokens get position 0.

    Raises:
        ShapeError: If the mask does not have two axes.

    Example:
        >>> position_ids_from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 3]])
    """
    if attention_mask.dim() != 2:
        raise ShapeError(f"attention_mask has shape {tuple(attention_mask.shape)}; expected (batch, tokens)")
    return (attention_mask.ne(0).cumsum(dim=1) - 1).clamp(min=0)


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
        if mask is not None and _is_left_padded(mask):
            warnings.warn(LEFT_PADDED, stacklevel=6)
        return torch.arange(rule.start, rule.start + shape[1], device=device)[None]
    return torch.where(real, real.cumsum(dim=1) + (rule.start - 1), rule.start - 1)


def _is_left_padded(mask: Tensor) -> bool:
    """Whether a text of the batch starts with padding; not read from a GPU, which would have to be waited for."""
    return mask.device.type == "cpu" and not has_no_values(mask) and bool((mask[:, :1] == 0).any())
