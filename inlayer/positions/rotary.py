"""Rotary positions: turn channel pairs of queries and keys by an angle that grows with position.

text -> ids -> rows -> [positions] -> hidden states -> head
- nothing is added to the rows here: the layer only prepares cos and sin, the attention applies them
- which channels form a pair: "half" (i with i + K/2; LLaMA) or "interleaved" (2i with 2i + 1; GPT-J, GLM, Cohere)
- how the tables are laid out over the rotated channels: "half" (angles, then the same angles again), "interleaved"
  (every angle twice) or "single" (every angle once; GPT-OSS). Usually as the pairs are, but GLM pairs interleaved
  channels and lays its tables out in halves
- angles in float32 whatever the model's dtype, cast at the very end; no table is cached, so none can be stale
- not here: context stretching (positions/scaling.py)
Checked against a plain loop and against transformers in tests/positions/test_rotary.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.errors import ConfigError, InputError, ShapeError
from inlayer.positions.scaling import Scaling, plain_frequencies
from inlayer.shapes import check_ids

__all__ = ["Angles", "RotaryPositions", "apply_rotary"]

Layout = Literal["half", "interleaved", "single"]
Pairing = Literal["half", "interleaved"]

WIDEST_HEAD = 2**20  # past this a head is a damaged config, and its frequencies would fill the memory


@dataclass(frozen=True, kw_only=True)
class Angles:
    """How fast each channel pair turns: the base, the share of the head that turns, and the context stretching."""

    theta: float = 10_000.0
    partial: float = 1.0
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        if not 0 < self.theta < math.inf:
            raise ConfigError(
                f"the rotary base theta is {self.theta}; it must be positive and finite (10,000 in the first models)"
            )
        if not 0 < self.partial <= 1:
            raise ConfigError(f"the rotated share of a head is {self.partial}; it must lie in (0, 1]")


class RotaryPositions(nn.Module):
    """cos and sin for given positions. It has no parameters and no buffers: `.to(bfloat16)` cannot round its angles.

    `angles` is one `Angles`, or one for each layer type where a model has several bases (Gemma-3). With `float32` the
    tables are handed out unrounded whatever the model's dtype (OLMo).
    """

    def __init__(
        self,
        head_dim: int,
        angles: Angles | Mapping[str, Angles] | None = None,
        *,
        pairing: Pairing = "half",
        layout: Layout | None = None,
        float32: bool = False,
    ) -> None:
        super().__init__()
        if not isinstance(head_dim, int) or not 2 <= head_dim <= WIDEST_HEAD:
            raise ConfigError(f"the head width is {head_dim!r}; it must lie in 2..{WIDEST_HEAD:,}")
        _check_names(pairing, layout or pairing)
        self.head_dim = head_dim
        self.angles: Angles | dict[str, Angles]
        self.angles = dict(angles) if isinstance(angles, Mapping) else angles or Angles()
        self.pairing: Pairing = pairing
        self.layout: Layout = layout or pairing
        self.float32 = float32
        if self.angles == {}:
            raise ConfigError("rotary positions that differ by layer need the angles of at least one layer type")
        for layer_type, one in self.angles.items() if isinstance(self.angles, dict) else [(None, self.angles)]:
            rotated = self.rotated_dim(one)
            if rotated < 2 or rotated % 2:
                raise ConfigError(
                    f"channels turn in pairs: a head of {head_dim} (share {one.partial:g}) leaves {rotated} to turn, "
                    "which must be an even number"
                )
            # Asked once at birth: settings that do not fit each other are refused here, not at the first text.
            frequencies, factor = self.inverse_frequencies(1, layer_type)
            if not (math.isfinite(factor) and bool(frequencies.isfinite().all())):
                raise ConfigError(f"{one} gives rotary frequencies or a factor that are not finite numbers")

    def rotated_dim(self, angles: Angles) -> int:
        """How many of the head's channels turn; the rest pass through untouched."""
        return int(self.head_dim * angles.partial)

    def _choose(self, layer_type: str | None) -> Angles:
        if isinstance(self.angles, Angles):
            return self.angles  # one table serves every layer, whatever its type
        if layer_type in self.angles:
            return self.angles[layer_type]
        raise InputError(
            f"layer_type is {layer_type!r}, but these positions differ by layer; choose one of {', '.join(self.angles)}"
        )

    def inverse_frequencies(
        self, length: int | Tensor = 1, layer_type: str | None = None
    ) -> tuple[Float[Tensor, " pairs"], float]:
        """Radians a token for every pair, and the factor on cos and sin, for a text of `length` tokens."""
        angles = self._choose(layer_type)
        dim = self.rotated_dim(angles)
        if angles.scaling is None:
            return plain_frequencies(dim, angles.theta), 1.0
        return angles.scaling.frequencies(dim, angles.theta, torch.as_tensor(length, device="cpu"))

    @torch.no_grad()
    def forward(
        self, position_ids: Tensor, dtype: torch.dtype = torch.float32, layer_type: str | None = None
    ) -> tuple[Float[Tensor, "... R"], Float[Tensor, "... R"]]:
        """cos and sin of shape position_ids.shape + (rotated channels,), in `dtype`."""
        position_ids = check_ids(position_ids, "position_ids")
        angles = self._choose(layer_type)
        if angles.scaling is None or position_ids.numel() == 0 or position_ids.is_meta:
            length: int | Tensor = 1
        else:
            length = position_ids.max().long().cpu() + 1  # long first: 127 + 1 is -128 in int8
        frequencies, factor = self.inverse_frequencies(length, layer_type)
        turns = position_ids[..., None].float() * frequencies.to(position_ids.device)
        if self.layout == "half":
            turns = torch.cat((turns, turns), dim=-1)
        elif self.layout == "interleaved":
            turns = turns.repeat_interleave(2, dim=-1)
        dtype = torch.float32 if self.float32 else dtype
        return (turns.cos() * factor).to(dtype), (turns.sin() * factor).to(dtype)

    def turn(self, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *, head_axis: int = 1) -> tuple[Tensor, Tensor]:
        """`apply_rotary` with the pairing and layout of these positions."""
        return apply_rotary(q, k, cos, sin, pairing=self.pairing, layout=self.layout, head_axis=head_axis)

    def extra_repr(self) -> str:
        return f"head_dim={self.head_dim}, angles={self.angles}, pairing={self.pairing}, layout={self.layout}"


def apply_rotary(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    pairing: str = "half",
    layout: str | None = None,
    head_axis: int = 1,
) -> tuple[Tensor, Tensor]:
    """Turn queries and keys of shape (B, H, T, K); with head_axis=2, of shape (B, T, H, K).

    cos and sin are (B, T, R) or (T, R) as `Rotary` gives them, laid out as `layout` says (by default as `pairing`).
    Channels past the rotated ones pass through. q and k may differ in their number of heads; each keeps its dtype, also
    where the tables are float32 and it is not (OLMo).
    """
    if q.dim() != 4 or k.dim() != 4 or head_axis not in (1, 2):
        raise ShapeError(
            f"q {tuple(q.shape)} and k {tuple(k.shape)} must have 4 axes, and head_axis {head_axis} must be 1 or 2"
        )
    _check_names(pairing, layout or pairing)
    # Counted from the end, the head axis is the same for (B, T, R) and for (T, R).
    cos, sin = (one_angle_a_pair(table, layout or pairing).unsqueeze(head_axis - 4) for table in (cos, sin))
    return _turn(q, cos, sin, pairing, "q"), _turn(k, cos, sin, pairing, "k")


def _check_names(pairing: str, layout: str) -> None:
    for name, value, known in (("pairing", pairing, get_args(Pairing)), ("layout", layout, get_args(Layout))):
        if value not in known:
            raise ConfigError(f"unknown {name} {value!r}; choose one of {', '.join(known)}")


def one_angle_a_pair(table: Tensor, layout: str) -> Tensor:
    if layout == "single":
        return table
    return table[..., : table.shape[-1] // 2] if layout == "half" else table[..., 0::2]


def _turn(x: Tensor, cos: Tensor, sin: Tensor, pairing: str, name: str) -> Tensor:
    rotated = 2 * cos.shape[-1]
    if rotated > x.shape[-1]:
        raise ShapeError(f"{name} has heads of {x.shape[-1]} channels, but cos and sin turn {rotated} of them")
    if any(mine not in (1, theirs) for mine, theirs in zip(cos.shape[-2::-1], x.shape[-2::-1], strict=False)):
        raise ShapeError(
            f"cos and sin, spread over heads, are {tuple(cos.shape)} and do not fit {name} {tuple(x.shape)}; "
            "head_axis is 1 for (B, H, T, K) and 2 for (B, T, H, K)"
        )
    turning, passing = x[..., :rotated], x[..., rotated:]
    if pairing == "half":
        first, second = turning.chunk(2, dim=-1)
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
    else:
        first, second = turning[..., 0::2], turning[..., 1::2]
        turned = torch.stack((first * cos - second * sin, second * cos + first * sin), dim=-1).flatten(-2)
    turned = turned.to(x.dtype)
    return torch.cat((turned, passing), dim=-1) if passing.shape[-1] else turned
