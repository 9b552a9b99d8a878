"""Context extension: the rotary frequencies of a model that reads longer texts than it was trained on.

text -> ids -> rows -> [positions] -> hidden states -> head
- float32 on the CPU, in the exact order of operations of `transformers`, because results are promised to be
  bit-equal; a step that looks clumsy is usually there for its rounding
- stateless: the result depends on the arguments alone. (`transformers` remembers the longest length seen for "dynamic",
  so that a short text after a long one can give another result there.)
Tested against transformers in tests/positions/test_scaling.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlayer.errors import ConfigError
from inlayer.families.spec import DynamicNTK, Linear, Llama3, LongRope, Scaling, Yarn

__all__ = ["plain_frequencies", "scaled_frequencies"]


def plain_frequencies(dim: int, theta: float | Tensor) -> Tensor:
    """1 / theta^(2i / dim) for every pair i: one radian per token for the first pair, hardly any for the last."""
    exponent = torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim
    return 1.0 / (theta**exponent)


def scaled_frequencies(scaling: Scaling | None, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:
    """Inverse frequencies of `dim // 2` channel pairs and the factor on cos and sin, for `length` tokens."""
    if scaling is None:
        return plain_frequencies(dim, theta), 1.0
    if isinstance(scaling, Linear):
        return plain_frequencies(dim, theta) / scaling.factor, 1.0
    if isinstance(scaling, DynamicNTK):
        return _dynamic_ntk(scaling, dim, theta, length), 1.0
    if isinstance(scaling, Yarn):
        return _yarn(scaling, dim, theta), scaling.cos_sin_factor
    if isinstance(scaling, Llama3):
        return _llama3(scaling, dim, theta), 1.0
    return _long_rope(scaling, dim, theta, length), scaling.cos_sin_factor


def _dynamic_ntk(rule: DynamicNTK, dim: int, theta: float, length: Tensor) -> Tensor:
    if dim <= 2:
        raise ConfigError(f"rotary scaling 'dynamic' needs more than one channel pair; the rotated width is {dim}")
    # `length` stays a tensor, so that the power is computed in float32, as in the reference.
    original = rule.original_max_position_embeddings
    stretched = torch.clamp(length, min=original)
    stretch = (rule.factor * stretched / original) - (rule.factor - 1)
    longer = plain_frequencies(dim, theta * stretch ** (dim / (dim - 2)))
    return torch.where(length > original, longer, plain_frequencies(dim, theta))


def _yarn(rule: Yarn, dim: int, theta: float) -> Tensor:
    if not theta > 1:
        raise ConfigError(f"rotary scaling 'yarn' divides by the logarithm of theta, which is {theta}; use 2 or more")
    powers = theta ** (torch.arange(0, dim, 2, device="cpu").to(torch.float32) / dim)
    kept, divided = 1.0 / powers, 1.0 / (rule.factor * powers)
    low, high = _yarn_ramp(rule, dim, theta)
    if low == high:
        high += 0.001  # avoids a division by zero
    ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float32, device="cpu") - low) / (high - low), 0, 1)
    keep = 1 - ramp
    return divided * (1 - keep) + kept * keep


def _yarn_ramp(rule: Yarn, dim: int, theta: float) -> tuple[float, float]:
    """The pairs that make `beta_fast` and `beta_slow` full rotations over the original length."""
    low, high = (
        (dim * math.log(rule.original_max_position_embeddings / (count * 2 * math.pi))) / (2 * math.log(theta))
        for count in (rule.beta_fast, rule.beta_slow)
    )
    if rule.truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    return max(low, 0.0), min(high, float(dim - 1))


def _llama3(rule: Llama3, dim: int, theta: float) -> Tensor:
    kept = plain_frequencies(dim, theta)
    wavelength = 2 * math.pi / kept
    original, low, high = rule.original_max_position_embeddings, rule.low_freq_factor, rule.high_freq_factor
    longest, shortest = original / low, original / high
    scaled = torch.where(wavelength > longest, kept / rule.factor, kept)
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * scaled / rule.factor + smooth * scaled
    between = ~(wavelength < shortest) & ~(wavelength > longest)
    return torch.where(between, blended, scaled)


def _long_rope(rule: LongRope, dim: int, theta: float, length: Tensor) -> Tensor:
    for name in ("short_factor", "long_factor"):
        if len(getattr(rule, name)) != dim // 2:
            raise ConfigError(
                f"rotary scaling 'longrope' has {len(getattr(rule, name))} values in {name}; "
                f"a rotated width of {dim} needs {dim // 2}"
            )
    exponent = torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim
    long, short = (
        1.0 / (torch.tensor(factors, dtype=torch.float32, device="cpu") * theta**exponent)
        for factors in (rule.long_factor, rule.short_factor)
    )
    return torch.where(length > rule.original_max_position_embeddings, long, short)
