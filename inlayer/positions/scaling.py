"""Context stretching: how a model trained on short texts keeps its rotary angles sensible on long ones.

text -> ids -> rows -> [positions] -> hidden states -> head
- one frozen class a method; each answers one question: the inverse frequency of every channel pair, and the
  factor on cos and sin, for a text of a given length
- arithmetic in float32 on the CPU in the very order of operations of `transformers`, because the results are
  promised bit for bit; a step that looks clumsy is usually there for its rounding
- stateless: the answer depends on the arguments alone. (`transformers` keeps the longest length it has seen for
  "dynamic", so there a short text after a long one may come out different; ours never does.)
Checked against transformers in tests/positions/test_scaling.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from inlayer.errors import ConfigError

__all__ = ["DynamicNTK", "Linear", "Llama3", "LongRope", "Scaling", "Yarn", "plain_frequencies"]


SMALLEST, LARGEST = 1e-6, 1e9  # beyond these a setting is damaged, and logarithms and quotients of it overflow


@runtime_checkable
class Scaling(Protocol):
    """Inverse frequencies of `dim // 2` channel pairs and the factor on cos and sin."""

    def frequencies(self, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]: ...


def plain_frequencies(dim: int, theta: float | Tensor) -> Tensor:
    """1 / theta^(2i / dim) for every pair i: the first pair turns one radian a token, the last hardly at all."""
    exponent = torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim
    return 1.0 / (theta**exponent)


def _check_positive(kind: str, **settings: int | float) -> None:
    for name, value in settings.items():
        if not SMALLEST <= value <= LARGEST:
            raise ConfigError(
                f"rotary scaling {kind!r} has {name} {value}; it must be a number in {SMALLEST:g}..{LARGEST:g}"
            )


@dataclass(frozen=True, kw_only=True)
class Linear:
    """Every position is divided by `factor`."""

    factor: float

    def __post_init__(self) -> None:
        _check_positive("linear", factor=self.factor)

    def frequencies(self, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:  # noqa: ARG002
        return plain_frequencies(dim, theta) / self.factor, 1.0


@dataclass(frozen=True, kw_only=True)
class DynamicNTK:
    """The base grows with texts longer than `original_max_position_embeddings`; shorter ones are unchanged."""

    factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        _check_positive(
            "dynamic", factor=self.factor, original_max_position_embeddings=self.original_max_position_embeddings
        )

    def frequencies(self, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:
        if dim <= 2:
            raise ConfigError(f"rotary scaling 'dynamic' needs more than one channel pair; the rotated width is {dim}")
        # Below the trained length the stretch is 1, so this also is the plain table. `length` stays a tensor: the
        # power is then taken in float32, as the reference does.
        stretched = torch.clamp(length, min=self.original_max_position_embeddings)
        stretch = (self.factor * stretched / self.original_max_position_embeddings) - (self.factor - 1)
        longer = plain_frequencies(dim, theta * stretch ** (dim / (dim - 2)))
        return torch.where(length > self.original_max_position_embeddings, longer, plain_frequencies(dim, theta)), 1.0


@dataclass(frozen=True, kw_only=True)
class Yarn:
    """Fast pairs keep their frequency, slow pairs are divided by `factor`, a ramp lies between (YaRN)."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attention_factor: float | None = None
    truncate: bool = True

    def __post_init__(self) -> None:
        _check_positive(
            "yarn",
            factor=self.factor,
            original_max_position_embeddings=self.original_max_position_embeddings,
            beta_fast=self.beta_fast,
            beta_slow=self.beta_slow,
        )

    def frequencies(self, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:  # noqa: ARG002
        if not theta > 1:
            raise ConfigError(
                f"rotary scaling 'yarn' divides by the logarithm of theta, which is {theta}; give 2 or more"
            )
        powers = theta ** (torch.arange(0, dim, 2, device="cpu").to(torch.float32) / dim)
        kept, divided = 1.0 / powers, 1.0 / (self.factor * powers)
        low, high = self._ramp_ends(dim, theta)
        if low == high:
            high += 0.001  # a ramp of no width would divide by zero
        ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float32, device="cpu") - low) / (high - low), 0, 1)
        keep = 1 - ramp
        return divided * (1 - keep) + kept * keep, self.cos_sin_factor

    def _ramp_ends(self, dim: int, theta: float) -> tuple[float, float]:
        """The pairs that turn `beta_fast` and `beta_slow` times over the trained length."""

        def pair_turning(times: float) -> float:
            return (dim * math.log(self.original_max_position_embeddings / (times * 2 * math.pi))) / (
                2 * math.log(theta)
            )

        low, high = pair_turning(self.beta_fast), pair_turning(self.beta_slow)
        if self.truncate:
            low, high = float(math.floor(low)), float(math.ceil(high))
        return max(low, 0.0), min(high, float(dim - 1))

    @property
    def cos_sin_factor(self) -> float:
        """Attention sharpens as the context stretches: the paper's 0.1 ln(factor) + 1, or DeepSeek's ratio of two."""
        if self.attention_factor is not None:
            return self.attention_factor

        def mscale_of(weight: float) -> float:
            return 1.0 if self.factor <= 1 else 0.1 * weight * math.log(self.factor) + 1.0

        if self.mscale and self.mscale_all_dim:
            return mscale_of(self.mscale) / mscale_of(self.mscale_all_dim)
        return mscale_of(1.0)


@dataclass(frozen=True, kw_only=True)
class Llama3:
    """LLaMA 3.1: long wavelengths are divided by `factor`, short ones kept, those between blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int

    def __post_init__(self) -> None:
        _check_positive(
            "llama3",
            factor=self.factor,
            low_freq_factor=self.low_freq_factor,
            high_freq_factor=self.high_freq_factor,
            original_max_position_embeddings=self.original_max_position_embeddings,
        )
        if self.high_freq_factor == self.low_freq_factor:
            raise ConfigError(
                f"rotary scaling 'llama3' has low_freq_factor = high_freq_factor = {self.low_freq_factor}; "
                "the blend between them would divide by zero"
            )

    def frequencies(self, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:  # noqa: ARG002
        kept = plain_frequencies(dim, theta)
        wavelength = 2 * math.pi / kept
        longest, shortest = (
            self.original_max_position_embeddings / self.low_freq_factor,
            self.original_max_position_embeddings / self.high_freq_factor,
        )
        scaled = torch.where(wavelength > longest, kept / self.factor, kept)
        smooth = (self.original_max_position_embeddings / wavelength - self.low_freq_factor) / (
            self.high_freq_factor - self.low_freq_factor
        )
        blended = (1 - smooth) * scaled / self.factor + smooth * scaled
        between = ~(wavelength < shortest) & ~(wavelength > longest)
        return torch.where(between, blended, scaled), 1.0


@dataclass(frozen=True, kw_only=True)
class LongRope:
    """Phi-3: one divisor a pair, from one list up to `original_max_position_embeddings` and from another past it."""

    short_factor: tuple[float, ...]
    long_factor: tuple[float, ...]
    original_max_position_embeddings: int
    factor: float
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        _check_positive("longrope", factor=self.factor)
        if self.original_max_position_embeddings < 2:
            raise ConfigError(
                f"rotary scaling 'longrope' needs original_max_position_embeddings of at least 2, not "
                f"{self.original_max_position_embeddings}"
            )
        for divisor in (*self.short_factor, *self.long_factor):
            _check_positive("longrope", divisor=divisor)

    def frequencies(self, dim: int, theta: float, length: Tensor) -> tuple[Tensor, float]:
        for name in ("short_factor", "long_factor"):
            if len(getattr(self, name)) != dim // 2:
                raise ConfigError(
                    f"rotary scaling 'longrope' has {len(getattr(self, name))} values in {name}; "
                    f"a rotated width of {dim} needs {dim // 2}"
                )
        exponent = torch.arange(0, dim, 2, dtype=torch.float32, device="cpu") / dim
        long, short = (
            1.0 / (torch.tensor(factors, dtype=torch.float32, device="cpu") * theta**exponent)
            for factors in (self.long_factor, self.short_factor)
        )
        return torch.where(length > self.original_max_position_embeddings, long, short), self.cos_sin_factor

    @property
    def cos_sin_factor(self) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        if self.factor <= 1.0:
            return 1.0
        return math.sqrt(1 + math.log(self.factor) / math.log(self.original_max_position_embeddings))
