"""Pooling: the hidden states of a text -> one vector.

text -> ids -> rows -> (+ positions) -> hidden states -> [pooling] -> vectors
- the mask alone says which positions are real, so left and right padding are the same to it
- a text of nothing but padding gives zeros, never NaN; what stands in padded positions, NaN too, never leaks
- half types are summed in float32 and cast back
- not here: normalizing the vectors
Checked against a plain loop over texts in tests/test_pooling.py.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inlayer.errors import DtypeError, InputError, ShapeError
from inlayer.tensors import check_float

__all__ = ["first_token_pool", "last_token_pool", "mean_pool"]


def mean_pool(hidden: Any, mask: Any = None) -> Float[Tensor, "B D"]:
    """The mean of each text's real hidden states: sum over the mask, divided by its count.

    >>> mean_pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[2.]])
    """
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    wide = torch.promote_types(hidden_BTD.dtype, torch.float32)
    # where, not a product: 0 * NaN is NaN
    real_BTD = hidden_BTD.where(mask_BT.unsqueeze(-1), 0)
    count_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1)
    return (real_BTD.sum(1, dtype=wide) / count_B1).to(hidden_BTD.dtype)


def last_token_pool(hidden: Any, mask: Any = None) -> Float[Tensor, "B D"]:
    """Each text's last real hidden state."""
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    place_BT = torch.arange(mask_BT.shape[1], device=mask_BT.device).where(mask_BT, -1)
    return take(hidden_BTD, place_BT.amax(1) if mask_BT.shape[1] else None)


def first_token_pool(hidden: Any, mask: Any = None) -> Float[Tensor, "B D"]:
    """Each text's first real hidden state: of a left-padded text the first after the padding."""
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    length = mask_BT.shape[1]
    place_BT = torch.arange(length, device=mask_BT.device).where(mask_BT, length)
    first_B = place_BT.amin(1) if length else None
    return take(hidden_BTD, None if first_B is None else first_B.where(first_B < length, -1))


def take(hidden_BTD: Float[Tensor, "B T D"], place_B: Int[Tensor, " B"] | None) -> Float[Tensor, "B D"]:
    """One hidden state per text; zeros where the place is -1, or where there are no places at all."""
    batch, _, width = hidden_BTD.shape
    if place_B is None:
        return hidden_BTD.sum(1)  # over no tokens: zeros, still part of the graph
    picked_BD = hidden_BTD.gather(1, place_B.clamp(min=0).view(batch, 1, 1).expand(batch, 1, width)).squeeze(1)
    return picked_BD.where(place_B.unsqueeze(-1) >= 0, 0)


def check_inputs(hidden: object, mask: object) -> tuple[Float[Tensor, "B T D"], Bool[Tensor, "B T"]]:
    """Hidden states and a boolean mask that fit each other, or an error."""
    hidden_BTD = check_float(hidden, "hidden", rank=3)
    if mask is None:
        return hidden_BTD, torch.ones(hidden_BTD.shape[:2], dtype=torch.bool, device=hidden_BTD.device)
    if not isinstance(mask, Tensor):
        raise DtypeError(f"mask is a {type(mask).__name__}, not a torch tensor")
    if mask.shape != hidden_BTD.shape[:2]:
        raise ShapeError(
            f"mask has shape {tuple(mask.shape)}, hidden {tuple(hidden_BTD.shape)}; "
            "a mask is one value per token (B, T)"
        )
    if mask.dtype != torch.bool:
        real = mask == 1
        if not bool((real | (mask == 0)).all()):
            raise InputError(
                "mask holds values other than 0 and 1; is it an additive attention mask, or a tensor of ids?"
            )
        mask = real
    return hidden_BTD, mask
