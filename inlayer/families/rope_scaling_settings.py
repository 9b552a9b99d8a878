"""RoPE scaling: methods that extend a rotary model beyond its training context length. No torch.

config.json -> [RoPE scaling] -> LayerSpec -> positions.RotaryPositions
- settings are checked when they are created; the computations are in positions/rope_scaling.py, which needs torch
Tested in tests/positions/test_rope_scaling.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from inlayer.errors import ConfigError

MIN_SETTING, MAX_SETTING = 1e-6, 1e9  # outside this range, logarithms and quotients of a setting overflow


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """A method for contexts longer than in training. Each setting has a range, except optional ones."""

    kind: ClassVar[str]
    ranges: ClassVar[Mapping[str, tuple[float, float]]] = {}  # ranges that differ from MIN_SETTING..MAX_SETTING

    def __post_init__(self) -> None:
        for field in fields(self):
            value, (low, high) = getattr(self, field.name), self.ranges.get(field.name, (MIN_SETTING, MAX_SETTING))
            for item in value if isinstance(value, tuple) else (value,):
                unchecked = field.default is None or isinstance(item, bool)
                if not unchecked and not low <= item <= high:
                    raise ConfigError(
                        f"RoPE scaling {self.kind!r} has {field.name} {item}; it must be a number in {low:g}..{high:g}"
                    )


@dataclass(frozen=True, kw_only=True)
class LinearScaling(RopeScaling):
    """Linear scaling: every position is divided by `factor`.

    Args:
        factor: Context extension factor.

    Raises:
        InlayerError: If a setting is outside its range.

    Example:
        >>> LinearScaling(factor=4.0)
        LinearScaling(factor=4.0)
    """

    kind = "linear"
    factor: float


@dataclass(frozen=True, kw_only=True)
class DynamicNTKScaling(RopeScaling):
    """Dynamic NTK: theta grows with texts longer than `original_max_position_embeddings`.

    Args:
        factor: Scaling factor for theta.
        original_max_position_embeddings: Context length in training.

    Raises:
        InlayerError: If a setting is outside its range.

    Example:
        >>> DynamicNTKScaling(factor=2.0, original_max_position_embeddings=2048).factor
        2.0
    """

    kind = "dynamic"
    factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, kw_only=True)
class YarnScaling(RopeScaling):
    """YaRN: high frequencies are kept, low ones are divided by `factor`, with a ramp in between.

    Args:
        factor: Context extension factor.
        original_max_position_embeddings: Context length in training.
        beta_fast: Pairs with more rotations than this over the original length are kept.
        beta_slow: Pairs with fewer rotations than this are divided.
        mscale: DeepSeek's `mscale`: numerator weight of the cos/sin factor.
        mscale_all_dim: DeepSeek's `mscale_all_dim`: denominator weight.
        attention_factor: The factor for cos and sin, instead of the computed one.
        truncate: Round the ends of the ramp to whole pairs.

    Raises:
        InlayerError: If a setting is outside its range.

    Example:
        >>> YarnScaling(factor=4.0, original_max_position_embeddings=4096).cos_sin_factor  # 0.1 ln(4) + 1
        1.138629436111989
    """

    kind = "yarn"
    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True

    @property
    def cos_sin_factor(self) -> float:
        """The factor for cos and sin: 0.1 ln(factor) + 1 as in the paper, or DeepSeek's ratio of two such terms."""
        if self.attention_factor is not None:
            return self.attention_factor

        def mscale_of(weight: float) -> float:
            return 1.0 if self.factor <= 1 else 0.1 * weight * math.log(self.factor) + 1.0

        if self.mscale and self.mscale_all_dim:
            return mscale_of(self.mscale) / mscale_of(self.mscale_all_dim)
        return mscale_of(1.0)


@dataclass(frozen=True, kw_only=True)
class Llama3Scaling(RopeScaling):
    """Llama-3.1: long wavelengths are divided by `factor`, short ones are kept, and those in between are blended.

    Args:
        factor: Context extension factor.
        low_freq_factor: Wavelengths above the original length divided by this are long.
        high_freq_factor: Wavelengths below the original length divided by this are short.
        original_max_position_embeddings: Context length in training.

    Raises:
        InlayerError: If a setting is outside its range.

    Example:
        >>> Llama3Scaling(
        ...     factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
        ... ).kind
        'llama3'
    """

    kind = "llama3"
    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


@dataclass(frozen=True, kw_only=True)
class LongRopeScaling(RopeScaling):
    """LongRoPE (Phi-3): one divisor per channel pair, from one list up to the original length and another beyond it.

    Args:
        short_factor: The divisors for texts up to the original length.
        long_factor: The divisors for longer texts.
        original_max_position_embeddings: Context length in training; at least 2.
        factor: Context extension factor; it also sets the factor for cos and sin.
        attention_factor: The factor for cos and sin, instead of the computed one.
        mscales: Phi-3.5-MoE: the factors for cos and sin, for short texts and for long texts.

    Raises:
        InlayerError: If a setting is outside its range.

    Example:
        >>> LongRopeScaling(
        ...     short_factor=(1.0, 1.0), long_factor=(1.0, 4.0), original_max_position_embeddings=4096, factor=1.0
        ... ).cos_sin_factor
        1.0
    """

    kind = "longrope"
    ranges: ClassVar = {"original_max_position_embeddings": (2, MAX_SETTING)}  # its logarithm is a divisor
    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float
    attention_factor: float | None = None
    mscales: tuple[float, ...] = ()

    @property
    def cos_sin_factor(self) -> float:
        """The factor for cos and sin."""
        if self.attention_factor is not None or self.factor <= 1.0:
            return 1.0 if self.attention_factor is None else self.attention_factor
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_max_position_embeddings))


@dataclass(frozen=True, kw_only=True)
class ProportionalScaling(RopeScaling):
    """Proportional (Gemma-4): the first `fraction` of the pairs rotate as in a whole head; the others do not rotate."""

    kind = "proportional"
    ranges: ClassVar = {"fraction": (MIN_SETTING, 1)}
    fraction: float
    factor: float = 1.0


@dataclass(frozen=True, kw_only=True)
class NTKAlphaScaling(RopeScaling):
    """NTK with a fixed `alpha` (Hunyuan): theta times alpha^(dim / (dim - 2)), for texts of any length."""

    kind = "dynamic"
    alpha: float
