"""Norms in input layers: LayerNorm and RMSNorm with the rounding of the original models.

rows + positions -> [norm] -> hidden states
Tested against transformers in tests/families/ (BERT, ModernBERT, DeBERTa, NanoChat, Inkling, Gemma-4).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from inlayer.families.spec import NormKind


class CastThenScaleNorm(nn.Module):
    """A norm in float32, rounded to the model's dtype before weight and bias are applied."""

    def __init__(
        self, width: int, eps: float, *, centered: bool = False, weight: bool = True, **factory_kwargs: Any
    ) -> None:
        super().__init__()
        self.eps, self.centered = eps, centered
        self.weight = nn.Parameter(torch.ones(width, **factory_kwargs)) if weight else None
        self.bias = nn.Parameter(torch.zeros(width, **factory_kwargs)) if centered else None

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalize the last axis."""
        values = hidden.float()
        if self.centered:
            mean = values.mean(-1, keepdim=True)
            variance = (values - mean).pow(2).mean(-1, keepdim=True)
            values = (values - mean) / torch.sqrt(variance + self.eps)
        else:
            values = values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + self.eps)
        values = values.to(hidden.dtype)
        values = values if self.weight is None else self.weight * values
        return values if self.bias is None else values + self.bias


class Float32RMSNorm(CastThenScaleNorm):
    """RMSNorm in float32, rounded only at the end (Gemma-3n, Gemma-4, Muse Spark)."""

    def forward(self, hidden: Tensor) -> Tensor:
        """Normalize the last axis."""
        values = hidden.float()
        values = values * torch.pow(values.pow(2).mean(-1, keepdim=True) + self.eps, -0.5)  # rsqrt rounds differently
        return (values if self.weight is None else values * self.weight.float()).to(hidden.dtype)


def build_norm(kind: NormKind, width: int, eps: float, **factory_kwargs: Any) -> nn.Module:
    """Return a family's norm; `factory_kwargs` are the device and dtype."""
    if kind.startswith("rmsnorm_fp32"):
        return Float32RMSNorm(width, eps, weight=kind == "rmsnorm_fp32", **factory_kwargs)
    if kind.startswith("rmsnorm"):
        return CastThenScaleNorm(width, eps, centered=False, weight=kind == "rmsnorm", **factory_kwargs)
    if kind == "layernorm_fp32":
        return CastThenScaleNorm(width, eps, centered=True, weight=True, **factory_kwargs)
    return nn.LayerNorm(width, eps=eps, bias=kind == "layernorm", **factory_kwargs)
