"""Step 6 of a walk: how order comes in.

text -> ids -> rows -> [+ positions] -> hidden states -> head
- learned and sinusoidal positions are added by the layer: their numbers are among its stages
- rotary positions add nothing here: what is told is the angle of every channel pair, and the cos and sin the layer
  prepares of it for the attention
- not here: putting other positions in place of the model's own (trace/line.py)
Checked in tests/trace/test_walk.py.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from inlayer.embeddings import Embeddings
from inlayer.positions import Angles, RotaryPositions, Scaling
from inlayer.positions.rotary import one_angle_per_pair
from inlayer.positions.scaling import plain_frequencies
from inlayer.trace.facts import Turn, Turning

__all__ = ["Turned", "turn"]


class Turned(NamedTuple):
    """How fast the pairs turn, and how far for each position."""

    turning: Turning
    turns: list[Turn]


def turn(layer: Embeddings, position_ids: Tensor, length: int, dims: int) -> list[Turned]:
    """What rotary positions prepare for these positions (T,) of a text of `length` tokens, by layer type."""
    rotary = layer.position_embedding
    if not isinstance(rotary, RotaryPositions):
        return []
    types: list[str | None] = [None] if isinstance(rotary.angles, Angles) else list(rotary.angles)
    return [_turn(layer, rotary, layer_type, position_ids, length, dims) for layer_type in types]


def _turn(
    layer: Embeddings, rotary: RotaryPositions, layer_type: str | None, position_ids: Tensor, length: int, dims: int
) -> Turned:
    angles = rotary.angles if isinstance(rotary.angles, Angles) else rotary.angles[layer_type or ""]
    frequencies, factor = rotary.inverse_frequencies(length, layer_type)
    plain = plain_frequencies(rotary.rotated_dim(angles), angles.theta)
    # The last position with them: some scalings look at the length of the text.
    asked = torch.cat((position_ids, position_ids.new_tensor([max(length - 1, 0)])))
    cos, sin = (
        one_angle_per_pair(table[:-1], rotary.layout)[:, :dims].tolist() for table in layer.rotary(asked, layer_type)
    )
    turned, unscaled = ((position_ids[:, None].float() * speed[:dims]).tolist() for speed in (frequencies, plain))
    turning = Turning(
        layer_type=layer_type,
        theta=float(angles.theta),
        head_dim=rotary.head_dim,
        pairs=len(frequencies),
        pairing=rotary.pairing,
        scaling=None if angles.scaling is None else _words(angles.scaling),
        factor=float(factor),
        frequencies=frequencies[:dims].tolist(),
        plain_frequencies=plain[:dims].tolist(),
    )
    rows = zip(turned, unscaled, cos, sin, strict=True)
    return Turned(turning, [Turn(angles=a, plain_angles=p, cos=c, sin=s) for a, p, c, s in rows])


def _words(scaling: Scaling) -> str:
    """Its kind, and what of it a reader asks for first."""
    said = type(scaling).__name__.lower()
    factor, trained = getattr(scaling, "factor", None), getattr(scaling, "original_max_position_embeddings", None)
    said += "" if factor is None else f", factor {factor:g}"
    return said + ("" if trained is None else f", trained on {trained:,} tokens")
