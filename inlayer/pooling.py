"""Pooling: a text's hidden states -> one vector.

text -> ids -> rows -> (+ positions) -> hidden states -> [pooling] -> vectors
- only the mask decides which positions are real, so left and right padding give the same result
- a text that is all padding gives zeros, never NaN; values at padded positions are ignored, even NaN
- float16 and bfloat16 are summed in float32, and the result is cast back
- texts of very different lengths do not need padding: pass the hidden states (N, D) and the Ragged of their ids
- not included: normalizing the vectors
Tested against a plain loop over texts in tests/test_pooling.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from inlayer.errors import InputError, ShapeError
from inlayer.files import quote
from inlayer.ragged import Ragged
from inlayer.tensors import check_dense, check_float, is_jit_tracing, to_bool_mask

if TYPE_CHECKING:  # other types get a better error message below, so jaxtyping does not check them
    States: TypeAlias = Tensor
    Mask: TypeAlias = Tensor | Ragged | None
    Ids: TypeAlias = Iterable[int]
else:
    States = Mask = Ids = Any
ROWS_PER_SUM = 256  # rows summed in sequence


def mean_pool(hidden: States, mask: Mask = None, *, exclude: Ids = ()) -> Float[Tensor, "B D"]:
    """Average the hidden states of each text's real tokens.

    All tokens that the mask does not exclude are included, even special tokens such as begin-of-text. To average
    only the tokens of the text, encode with `add_special_tokens=False`, or pass `exclude=tokenizer.special_ids`.

    Args:
        hidden: Hidden states (B, T, D), or (N, D) for the N ids of a Ragged.
        mask: (B, T), true or 1 for the tokens to include, by default all; or the Ragged of the ids.
        exclude: Ids to leave out. Only with a Ragged, since a mask has no ids.

    Returns:
        One vector per text (B, D), or zeros if the text has no real tokens.

    Raises:
        ShapeError: If the shapes of the hidden states and the mask do not match.
        InputError: If a mask has values other than 0 and 1, or `exclude` is invalid or given without a Ragged.

    Example:
        >>> mean_pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
        tensor([[2.]])
    """
    excluded = _check_exclude(exclude)
    if excluded and not isinstance(mask, Ragged):
        raise InputError("exclude works only with a Ragged; with a mask, set the excluded positions to 0")
    if isinstance(mask, Ragged):
        hidden_ND, counts_B = check_ragged(hidden, mask)
        if excluded:
            included_N = ~np.isin(mask.flat, excluded)
            included = Ragged(mask.flat[included_N], np.concatenate(([0], included_N.cumsum()))[mask.offsets])
            return mean_pool(hidden_ND[torch.from_numpy(included_N).to(hidden_ND.device)], included)
        float_ND = hidden_ND.to(torch.promote_types(hidden_ND.dtype, torch.float32))
        # First sum short blocks, then the blocks of each text: one long sum would lose digits.
        bounds = np.union1d(mask.offsets, np.arange(0, len(hidden_ND), ROWS_PER_SUM))
        block_SD = sum_rows(float_ND, np.repeat(np.arange(len(bounds) - 1), np.diff(bounds)), len(bounds) - 1)
        sum_BD = sum_rows(block_SD, np.searchsorted(mask.offsets, bounds[:-1], side="right") - 1, len(mask))
        return (sum_BD / counts_B.clamp(min=1).unsqueeze(-1)).to(hidden_ND.dtype)
    hidden_BTD, mask_BT = check_inputs(hidden, mask)
    sum_dtype = torch.promote_types(hidden_BTD.dtype, torch.float32)
    # where instead of a product, because 0 * NaN is NaN
    real_BTD = hidden_BTD.where(mask_BT.unsqueeze(-1), 0)
    count_B1 = mask_BT.sum(1, keepdim=True).clamp(min=1)
    return (real_BTD.sum(1, dtype=sum_dtype) / count_B1).to(hidden_BTD.dtype)


def _check_exclude(exclude: object) -> list[int]:
    try:
        return [index(token_id) for token_id in exclude]  # type: ignore[attr-defined]
    except TypeError:
        raise InputError(
            f"exclude is {quote(exclude)}; pass a collection of ids, such as tokenizer.special_ids"
        ) from None


def last_token_pool(hidden: States, mask: Mask = None) -> Float[Tensor, "B D"]:
    """Take the hidden state of each text's last real token.

    Args:
        hidden: Hidden states (B, T, D), or (N, D) for the N ids of a Ragged.
        mask: (B, T), true or 1 for the tokens to include, by default all; or the Ragged of the ids.

    Returns:
        One vector per text (B, D), or zeros if the text has no real tokens.

    Raises:
        ShapeError: If the shapes of the hidden states and the mask do not match.
        InputError: If a mask has values other than 0 and 1.

    Example:
        >>> last_token_pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
        tensor([[3.]])
    """
    return select_token(hidden, mask, last=True)


def first_token_pool(hidden: States, mask: Mask = None) -> Float[Tensor, "B D"]:
    """Take the hidden state of each text's first real token, which follows the padding of a left-padded text.

    Args:
        hidden: Hidden states (B, T, D), or (N, D) for the N ids of a Ragged.
        mask: (B, T), true or 1 for the tokens to include, by default all; or the Ragged of the ids.

    Returns:
        One vector per text (B, D), or zeros if the text has no real tokens.

    Raises:
        ShapeError: If the shapes of the hidden states and the mask do not match.
        InputError: If a mask has values other than 0 and 1.

    Example:
        >>> first_token_pool(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
        tensor([[1.]])
    """
    return select_token(hidden, mask, last=False)


def sum_rows(rows_ND: Tensor, target_N: npt.NDArray[np.int64], count: int) -> Tensor:
    """Sum rows into `count` vectors: row i is added to vector target_N[i]."""
    index_N = torch.from_numpy(target_N).to(rows_ND.device)
    return rows_ND.new_zeros(count, rows_ND.shape[1]).index_add(0, index_N, rows_ND)


def select_token(hidden: object, mask: object, *, last: bool) -> Float[Tensor, "B D"]:
    """Return the hidden state of each text's last or first real token; a text without any gives zeros."""
    if isinstance(mask, Ragged):
        hidden_ND, counts_B = check_ragged(hidden, mask)
        index_B = counts_B.cumsum(0) - (1 if last else counts_B)
    else:
        hidden_BTD, mask_BT = check_inputs(hidden, mask)
        hidden_ND, counts_B = hidden_BTD.flatten(0, 1), mask_BT.sum(1)
        ordered_BT = mask_BT.flip(1) if last else mask_BT
        skipped_B = (ordered_BT.cumsum(1) == 0).sum(1)  # padding before the first real token
        start_B = mask_BT.shape[1] * torch.arange(mask_BT.shape[0], device=mask_BT.device)
        index_B = start_B + (mask_BT.shape[1] - 1 - skipped_B if last else skipped_B)
    if not is_jit_tracing() and len(hidden_ND) == 0:
        return hidden_ND.sum(0).repeat(len(counts_B), 1)  # an empty sum: zeros with an autograd graph
    return hidden_ND[index_B.where(counts_B > 0, 0)].where(counts_B.unsqueeze(-1) > 0, 0)


def check_ragged(hidden: object, ids: Ragged) -> tuple[Float[Tensor, "N D"], Int[Tensor, " B"]]:
    """Check that there is one hidden state per id, and return them with each text's number of tokens."""
    hidden_ND = check_float(hidden, "hidden", axes=("tokens", "width"))
    if len(hidden_ND) != ids.flat.size:
        raise ShapeError(
            f"hidden has shape {tuple(hidden_ND.shape)}, but the Ragged has {ids.flat.size} ids; pass one hidden state "
            "per id (N, D)"
        )
    return hidden_ND, torch.from_numpy(ids.counts).to(hidden_ND.device)


def check_inputs(hidden: object, mask: object) -> tuple[Float[Tensor, "B T D"], Bool[Tensor, "B T"]]:
    """Check hidden states and mask, and convert the mask to bool."""
    hidden_BTD = check_float(hidden, "hidden", axes=("batch", "tokens", "width"))
    if mask is None:
        return hidden_BTD, torch.ones(hidden_BTD.shape[:2], dtype=torch.bool, device=hidden_BTD.device)
    mask = check_dense(mask, "mask")
    if not is_jit_tracing() and mask.shape != hidden_BTD.shape[:2]:
        raise ShapeError(
            f"mask has shape {tuple(mask.shape)}, but hidden has shape {tuple(hidden_BTD.shape)}; pass a mask (B, T) "
            "with one value per token"
        )
    return hidden_BTD, mask if mask.dtype == torch.bool else to_bool_mask(mask, "mask")
