"""The floor: the letters that name tensor sizes everywhere in inlayer, and the checks that speak in them.

B batch, T tokens of one text, V table rows (vocabulary), D width of a row (n_embd), H heads, K head width,
N tokens of a whole batch in one row (B * T). A suffix says a tensor's shape where it is made: `hidden_BTD`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inlayer.errors import DtypeError, ShapeError

__all__ = ["check_float", "check_ids"]

ID_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_ids(ids: object, name: str = "input_ids") -> Tensor:
    """Ids as a tensor of integers, or an error that names what came instead."""
    if not isinstance(ids, Tensor):
        raise DtypeError(f"{name} is a {type(ids).__name__}, not a torch tensor; wrap it: torch.tensor([[...]])")
    if ids.dtype not in ID_DTYPES:
        raise DtypeError(
            f"{name} has dtype {ids.dtype}; ids are integers (torch.int64); did embeddings come in as ids?"
        )
    return ids


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
