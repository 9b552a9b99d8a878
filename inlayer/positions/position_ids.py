"""Position ids: the position of each token, passed by the caller or computed by a rule.

text -> ids -> [position ids] -> rows + positions -> hidden states -> head
- position ids from the caller are used unchanged, which is sufficient for left padding and packed sequences. By
  default, the family's rule computes them (families/spec.py, PositionIdRule)
Tested in tests/positions/test_position_ids.py and tests/test_embeddings.py, against transformers in tests/families/.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from inlayer.errors import ShapeError
from inlayer.families.spec import PositionIdRule
from inlayer.tensors import check_dense, is_meta_or_traced, to_bool_mask

LEFT_PADDED = (
    "attention_mask has padding on the left, but positions count from the first column; pass "
    "position_ids=inlayer.position_ids_from_mask(attention_mask)"
)


def position_ids_from_mask(attention_mask: Tensor) -> Tensor:
    """Compute position ids that skip padding: the first real token of each text is at position 0.

    Pass them whenever a batch is padded on the left and positions are absolute or rotary.

    Args:
        attention_mask: (B, T), true or 1 for real tokens, false or 0 for padding.

    Returns:
        Position ids (B, T) int64; padding tokens get position 0.

    Raises:
        DtypeError: If the mask is not a dense tensor.
        ShapeError: If the mask does not have two axes.
        InputError: If the mask has values other than 0 and 1.

    Example:
        >>> position_ids_from_mask(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]]))
        tensor([[0, 0, 0, 1],
                [0, 1, 2, 3]])
    """
    mask = check_dense(attention_mask, "attention_mask")
    if mask.dim() != 2:
        raise ShapeError(f"attention_mask has shape {tuple(mask.shape)}; expected (batch, tokens)")
    return (to_bool_mask(mask, "attention_mask").cumsum(dim=1) - 1).clamp(min=0)


def make_position_ids(
    rule: PositionIdRule, shape: tuple[int, int], device: torch.device, ids: Tensor | None, mask: Tensor | None
) -> Tensor:
    """Make position ids (B, T), or (1, T) if they are the same for all texts."""
    real: Tensor | None = None
    if rule.by == "ids" and ids is not None and rule.padding_idx is not None:
        real = ids.ne(rule.padding_idx)
    elif rule.by == "mask" and mask is not None:
        real = mask.ne(0)
    if real is None:  # also with inputs_embeds, where padding cannot be recognized
        if mask is not None and _is_left_padded(mask):
            warnings.warn(LEFT_PADDED, stacklevel=6)
        return torch.arange(rule.start, rule.start + shape[1], device=device)[None]
    return torch.where(real, real.cumsum(dim=1) + (rule.start - 1), rule.start - 1)


def _is_left_padded(mask: Tensor) -> bool:
    """Return whether any text is left-padded. Not checked on a GPU, because that would force a sync."""
    if mask.device.type != "cpu" or is_meta_or_traced(mask):
        return False
    real = mask == 0 if bool((mask < 0).any()) else mask != 0  # an additive mask has 0 for real tokens
    return bool((~real[:, :1] & real).any())
