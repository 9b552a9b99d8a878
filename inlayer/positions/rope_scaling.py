"""RoPE scaling, for contexts longer than in training: linear, dynamic NTK, YaRN, Llama-3, LongRoPE, ...

position ids -> [frequencies] -> cos and sin
- operations are in the same order as in transformers; a step that looks clumsy usually reproduces its rounding
- for "dynamic", transformers remembers the longest text so far; here, it depends only on the current text
- see also: each kind's settings (families/rope_scaling_settings.py), the kind in each config (families/rope.py)
Tested against transformers in tests/positions/test_rope_scaling.py.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from inlayer.errors import InputError
from inlayer.families import rope_scaling_settings as settings
from inlayer.families.rope_scaling_settings import RopeScaling
from inlayer.files import quote


def plain_frequencies(dim: int, theta: float | Tensor) -> Tensor:
    """Return 1 / theta^(2i / dim) for every pair i: one radian per token for the first, almost none for the last."""
    return 1.0 / _powers(dim, theta)


def _powers(dim: int, theta: float | Tensor) -> Tensor:
    return torch.pow(theta, torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim)


def scaled_frequencies(scaling: RopeScaling | None, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:
    """Return the inverse frequencies of `dim // 2` channel pairs and the cos/sin factor, for `length` tokens."""
    if scaling is None:
        return plain_frequencies(dim, theta), 1.0
    if isinstance(scaling, settings.LinearScaling):
        return plain_frequencies(dim, theta) / scaling.factor, 1.0
    if isinstance(scaling, settings.DynamicNTKScaling):
        return _dynamic_ntk(scaling, dim, theta, length), 1.0
    if isinstance(scaling, settings.YarnScaling):
        return _yarn(scaling, dim, theta), scaling.cos_sin_factor
    if isinstance(scaling, settings.Llama3Scaling):
        return _llama3(scaling, dim, theta), 1.0
    if isinstance(scaling, settings.ProportionalScaling):
        return _proportional(scaling, dim, theta), 1.0
    if isinstance(scaling, settings.NTKAlphaScaling):
        _check_ntk(dim)
        return plain_frequencies(dim, theta * scaling.alpha ** (dim / (dim - 2))), 1.0
    if not isinstance(scaling, settings.LongRopeScaling):
        raise InputError(f"RoPE scaling {quote(scaling)} is unknown; pass a method of inlayer.positions, or None")
    factor = scaling.cos_sin_factor
    if scaling.mscales:
        factor = scaling.mscales[int(length > scaling.original_max_position_embeddings)]
    return _long_rope(scaling, dim, theta, length), factor


def _check_ntk(dim: int) -> None:
    if dim <= 2:
        raise InputError(f"RoPE scaling 'dynamic' needs more than one channel pair; the rotated width is {dim}")


def _proportional(scaling: settings.ProportionalScaling, dim: int, theta: float) -> Tensor:
    rotated = int(scaling.fraction * dim // 2)
    # Only these powers are computed, as in the reference: the last bits of a power depend on the length of the tensor.
    powers = theta ** (torch.arange(0, 2 * rotated, 2, dtype=torch.int64).float() / dim)
    return torch.cat((1.0 / powers, torch.zeros(dim // 2 - rotated))) / scaling.factor


def _dynamic_ntk(scaling: settings.DynamicNTKScaling, dim: int, theta: float, length: Tensor) -> Tensor:
    _check_ntk(dim)
    # `length` stays a tensor, so the power is computed in float32, as in the reference.
    original = scaling.original_max_position_embeddings
    clamped = torch.clamp(length, min=original)
    theta_factor = (scaling.factor * clamped / original) - (scaling.factor - 1)
    longer = plain_frequencies(dim, theta * theta_factor ** (dim / (dim - 2)))
    return torch.where(length > original, longer, plain_frequencies(dim, theta))


def _yarn(scaling: settings.YarnScaling, dim: int, theta: float) -> Tensor:
    if not theta > 1:
        raise InputError(f"RoPE scaling 'yarn' divides by log(theta), so theta must be greater than 1; it is {theta}")
    powers = _powers(dim, theta)
    unscaled, divided = 1.0 / powers, 1.0 / (scaling.factor * powers)
    # the pairs that make `beta_fast` and `beta_slow` full rotations over the original length
    low, high = (
        (dim * math.log(scaling.original_max_position_embeddings / (count * 2 * math.pi))) / (2 * math.log(theta))
        for count in (scaling.beta_fast, scaling.beta_slow)
    )
    if scaling.truncate:
        low, high = float(math.floor(low)), float(math.ceil(high))
    low, high = max(low, 0.0), min(high, float(dim - 1))
    if low == high:
        high += 0.001  # avoids a division by zero
    ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float32, device="cpu") - low) / (high - low), 0, 1)
    unscaled_share = 1 - ramp
    return divided * (1 - unscaled_share) + unscaled * unscaled_share


def _llama3(scaling: settings.Llama3Scaling, dim: int, theta: float) -> Tensor:
    unscaled = plain_frequencies(dim, theta)
    wavelength = 2 * math.pi / unscaled
    original, low, high = scaling.original_max_position_embeddings, scaling.low_freq_factor, scaling.high_freq_factor
    longest, shortest = original / low, original / high
    scaled = torch.where(wavelength > longest, unscaled / scaling.factor, unscaled)
    smooth = (original / wavelength - low) / (high - low)
    blended = (1 - smooth) * scaled / scaling.factor + smooth * scaled
    between = ~(wavelength < shortest) & ~(wavelength > longest)
    return torch.where(between, blended, scaled)


def _long_rope(scaling: settings.LongRopeScaling, dim: int, theta: float, length: Tensor) -> Tensor:
    for name in ("short_factor", "long_factor"):
        if len(getattr(scaling, name)) != dim // 2:
            raise InputError(
                f"RoPE scaling 'longrope' has {len(getattr(scaling, name))} values in {name}; "
                f"a rotated width of {dim} needs {dim // 2}"
            )
    long, short = (
        1.0 / (torch.tensor(factors, dtype=torch.float32, device="cpu") * _powers(dim, theta))
        for factors in (scaling.long_factor, scaling.short_factor)
    )
    return torch.where(length > scaling.original_max_position_embeddings, long, short)
