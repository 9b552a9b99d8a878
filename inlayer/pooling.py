"""Pooling: the hidden states of a text -> one vector.

text -> ids -> rows -> (+ positions) -> hidden states -> [pooling] -> vectors
- the mask alone decides which positions are real, so that left and right padding give the same result
- a text of padding only gives zeros, never NaN; values at padded positions, even NaN, do not matter
- half types are summed in float32 and cast back
- elsewhere: normalizing the vectors
Tested against a plain loop over texts in tests/test_pooling.py.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inlayer.errors import InputError, ShapeError
from inlayer.tensors import check_dense, check_float

__all__ = ["first_token_pool", "last_token_pool", "mean_pool"]


def mean_pool(hidden: Any, mask: Any = None) -> Float[Tensor, "B D"]:
    """Average the hidden states of each text's real tokens.

    Args:
        hidden: Hidden states (B, T, D).
        mask: (B, T), true or 1 for real tokens; by default all tokens are real.

    Returns:
        One vector per text (B, D); zeros for a text without real tokens.

    Example:
        >>> mean_pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
        tensor([[2.]])
    """
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    wide = torch.promote_types(hidden_BTD.dtype, torch.float32)
    # where instead of a product, because 0 * NaN is NaN
    real_BTD = hidden_BTD.where(mask_BT.unsqueeze(-1), 0)
    count_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1)
    return (real_BTD.sum(1, dtype=wide) / count_B1).to(hidden_BTD.dtype)


def last_token_pool(hidden: Any, mask: Any = None) -> Float[Tensor, "B D"]:
    """Take the hidden state of each text's last real token.

    Args:
        hidden: Hidden states (B, T, D).
        mask: (B, T), true or 1 for real tokens; by default all tokens are real.

    Returns:
        One vector per text (B, D); zeros for a text without real tokens.
    """
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    index_BT = torch.arange(mask_BT.shape[1], device=mask_BT.device).where(mask_BT, -1)
    return select(hidden_BTD, index_BT.amax(1) if mask_BT.shape[1] else None)


def first_token_pool(hidden: Any, mask: Any = None) -> Float[Tensor, "B D"]:
    """Take the hidden state of each text's first real token, which follows the padding of a left-padded text.

    Args:
        hidden: Hidden states (B, T, D).
        mask: (B, T), true or 1 for real tokens; by default all tokens are real.

    Returns:
        One vector per text (B, D); zeros for a text without real tokens.
    """
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    length = mask_BT.shape[1]
    index_BT = torch.arange(length, device=mask_BT.device).where(mask_BT, length)
    first_B = index_BT.amin(1) if length else None
    return select(hidden_BTD, None if first_B is None else first_B.where(first_B < length, -1))


def select(hidden_BTD: Float[Tensor, "B T D"], index_B: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
    """One hidden state per text; zeros if the index is -1, or if texts have no tokens."""
    batch, _, width = hidden_BTD.shape
    if index_B is None:
        return hidden_BTD.sum(1)  # an empty sum: zeros that are still part of the graph
    picked_BD = hidden_BTD.gather(1, index_B.clamp(min=0).view(batch, 1, 1).expand(batch, 1, width)).squeeze(1)
    return picked_BD.where(index_B.unsqueeze(-1) >= 0, 0)


def check_inputs(hidden: object, mask: object) -> tuple[Float[Tensor, "B T D"], Bool[Tensor, "B T"]]:
    """Check hidden states and mask, and convert the mask to bool."""
    hidden_BTD = check_float(hidden, "hidden", rank=3)
    if mask is None:
        return hidden_BTD, torch.ones(hidden_BTD.shape[:2], dtype=torch.bool, device=hidden_BTD.device)
    mask = check_dense(mask, "mask")
    if mask.shape != hidden_BTD.shape[:2]:
        raise ShapeError(
            f"mask has shape {tuple(mask.shape)}, hidden {tuple(hidden_BTD.shape)}; "
            "a mask has one value per token (B, T)"
        )
    if mask.dtype != torch.bool:
        real = mask == 1
        if not bool((real | (mask == 0)).all()):
            raise InputError(
                "mask has values other than 0 and 1; is it an additive attention mask, or a tensor of ids?"
            )
        mask = real
    return hidden_BTD, mask
