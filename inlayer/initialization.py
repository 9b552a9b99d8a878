"""Initialization: the values of new rows in tables and learned positions.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- "normal": N(0, init_std), as in GPT-like models; "embedding": N(0, 1), as in nn.Embedding;
  "scaled": N(0, 1 / sqrt(D)), rows with a norm of about 1
- "zeros" and "mean" (the mean of the existing rows) are for rows added to a table
- a seed uses a private generator: the global random state is neither read nor changed
Tested in tests/test_initialization.py.
"""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from inlayer.checks import check_seed
from inlayer.errors import InputError

InitRule: TypeAlias = Literal["normal", "embedding", "scaled"]
ResizeRule: TypeAlias = Literal["mean", "zeros", InitRule]
INIT_RULES, RESIZE_RULES = get_args(InitRule), get_args(ResizeRule)


def check_init_rule(rule: str, allowed: tuple[str, ...]) -> None:
    """Check the name of an initialization rule."""
    if rule not in allowed:
        raise InputError(f"init is {rule!r}; it must be one of {', '.join(map(repr, allowed))}")


def derive_seeds(seed: int | None, count: int) -> list[int] | list[None]:
    """Derive independent seeds from one. With one seed for both tables, position 0 and token 0 would be identical."""
    if seed is None:
        return [None] * count
    generator = torch.Generator().manual_seed(check_seed(seed))
    return torch.randint(2**62, (count,), generator=generator).tolist()


@torch.no_grad()
def init_rows(
    rows_VD: Float[Tensor, "V D"], rule: str, init_std: float, seed: int | None, padding_idx: int | None = None
) -> None:
    """Fill rows in place using any rule except "mean", and the padding row with zeros. Meta tensors are unchanged."""
    if rows_VD.is_meta:  # there is nothing to fill, and torch would import its compiler (1 s, 70 MB)
        return
    if rule == "zeros":
        rows_VD.zero_()
        return
    std = {"normal": init_std, "embedding": 1.0, "scaled": 1 / math.sqrt(rows_VD.shape[1])}[rule]
    generator = None if seed is None else torch.Generator(rows_VD.device).manual_seed(seed)
    rows_VD.normal_(0.0, std, generator=generator)
    if padding_idx is not None:
        rows_VD[padding_idx].zero_()


@torch.no_grad()
def mean_row(rows_VD: Float[Tensor, "V D"], padding_idx: int | None) -> Float[Tensor, " D"]:
    """Return the mean of all rows except the padding row, in at least float32, or zeros if there are no other rows."""
    sum_dtype = torch.promote_types(rows_VD.dtype, torch.float32)
    parts = [rows_VD] if padding_idx is None else [rows_VD[:padding_idx], rows_VD[padding_idx + 1 :]]
    total_D = torch.stack([part.sum(0, dtype=sum_dtype) for part in parts]).sum(0)
    return (total_D / max(1, sum(len(part) for part in parts))).to(rows_VD.dtype)
