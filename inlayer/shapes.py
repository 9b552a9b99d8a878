"""The floor: the letters that name tensor sizes everywhere in inlayer, and the checks that rooms share.

B batch, T tokens of one text, V table rows (vocabulary), D width of a row (n_embd), H heads, K head width,
N tokens of a whole batch in one row (B * T). A suffix says a tensor's shape where it is made: `hidden_BTD`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from inlayer.errors import DtypeError, InputError, ShapeError

__all__ = ["check_float", "check_ids", "check_padding", "check_seed", "check_size", "check_std", "is_finite"]

SIGNED_OR_SMALL = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)  # few kernels know them: converted


def check_ids(ids: object, name: str = "input_ids") -> Tensor:
    """Ids as a tensor of integers, or an error that names what came instead."""
    if not isinstance(ids, Tensor):
        hint = {"str": "encode it first", "Ragged": "call its .padded(pad_id)"}.get(
            type(ids).__name__, "wrap it: torch.tensor([[...]])"
        )
        raise DtypeError(f"{name} is a {type(ids).__name__}, not a torch tensor; {hint}")
    if ids.dtype in UNSIGNED:
        signed = ids.to(torch.int64)
        # One of 2**63 or more comes out negative; the largest stands for it, which is outside every table too.
        return signed.masked_fill(signed < 0, 2**63 - 1) if ids.dtype == torch.uint64 else signed
    if ids.dtype not in SIGNED_OR_SMALL:
        hint = "is it a mask?" if ids.dtype == torch.bool else "are they vectors (inputs_embeds)?"
        raise DtypeError(f"{name} has dtype {ids.dtype}; it holds whole numbers (torch.int64); {hint}")
    return ids


def check_seed(seed: object) -> int:
    """A seed that torch's generators take."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; it is a whole number in 0..{2**63 - 1}")
    return seed


def check_size(size: object, name: str) -> None:
    """A whole number of at least 1."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InputError(f"{name} is {size!r}; it must be a whole number of at least 1")


def check_padding(padding_idx: object, rows: int) -> int | None:
    """The padding row counted from the start, or an error naming the range."""
    if padding_idx is None:
        return None
    if not isinstance(padding_idx, int) or isinstance(padding_idx, bool) or not -rows <= padding_idx < rows:
        raise InputError(f"padding_idx {padding_idx!r} is outside {-rows}..{rows - 1}, the rows of the table")
    return padding_idx % rows


def check_std(init_std: float) -> float:
    """A standard deviation to draw with."""
    if not (is_finite(init_std) and init_std >= 0):
        raise InputError(f"init_std is {init_std!r}; a standard deviation is finite and not negative")
    return init_std


def is_finite(value: Any) -> bool:
    """Is it a number, and neither NaN nor infinite?"""
    try:
        return math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def check_float(x: object, name: str, width: int | None = None, rank: int | None = None) -> Tensor:
    """A floating-point tensor whose last axis is `width` and whose rank is `rank`, where these are given."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"{name} is a {type(x).__name__}, not a torch tensor")
    if not x.is_floating_point():
        raise DtypeError(f"{name} has dtype {x.dtype}; it holds vectors, so it must be floating point")
    if rank is not None and x.dim() != rank:
        raise ShapeError(f"{name} has {x.dim()} axes {tuple(x.shape)}; expected {rank}")
    if width is not None and (x.dim() == 0 or x.shape[-1] != width):
        raise ShapeError(f"{name} has shape {tuple(x.shape)}; its last axis must be the width {width}")
    return x
