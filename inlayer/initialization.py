"""The values a table is born with.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- "normal": N(0, init_std), what GPT-like models use; "embedding": N(0, 1), what nn.Embedding draws;
  "scaled": N(0, 1 / sqrt(D)), rows of about unit length
- "zeros" and "mean" (the mean of the rows already there) are for new rows of a grown table
- a seed draws from a private generator: the global random state is neither read nor moved
Checked in tests/test_initialization.py.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from inlayer.errors import InputError

__all__ = ["BIRTH_RULES", "GROWTH_RULES", "check_rule", "draw", "mean_row"]

BIRTH_RULES = ("normal", "embedding", "scaled")
GROWTH_RULES = ("mean", "zeros", *BIRTH_RULES)


def check_rule(rule: str, allowed: tuple[str, ...]) -> str:
    """The name of an init rule, or an error that lists the ones there are."""
    if rule not in allowed:
        raise InputError(f"init {rule!r} is unknown; choose one of {', '.join(map(repr, allowed))}")
    return rule


@torch.no_grad()
def draw(rows_VD: Float[Tensor, "V D"], rule: str, init_std: float, seed: int | None) -> None:
    """Fill the rows in place by one of the rules that need no other rows. Meta rows have no values to fill."""
    if rows_VD.is_meta:  # torch would import its compiler to draw nothing: a second and 70 MB
        return
    if rule == "zeros":
        rows_VD.zero_()
        return
    std = {"normal": init_std, "embedding": 1.0, "scaled": 1 / math.sqrt(rows_VD.shape[1])}[rule]
    if seed is None:
        rows_VD.normal_(0.0, std)
    else:
        rows_VD.normal_(0.0, std, generator=torch.Generator(rows_VD.device).manual_seed(seed))


@torch.no_grad()
def mean_row(rows_VD: Float[Tensor, "V D"], padding_idx: int | None) -> Float[Tensor, " D"]:
    """The mean of all rows but the padding row, summed in float32 at least; zeros where no row is left."""
    wide = torch.promote_types(rows_VD.dtype, torch.float32)
    parts = [rows_VD] if padding_idx is None else [rows_VD[:padding_idx], rows_VD[padding_idx + 1 :]]
    total_D = torch.stack([part.sum(0, dtype=wide) for part in parts]).sum(0)
    return (total_D / max(1, sum(len(part) for part in parts))).to(rows_VD.dtype)
