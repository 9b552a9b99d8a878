"""Step 6 of a walk: the position scheme, its replacement on request, and the rotary angles.

text -> ids -> rows -> [+ positions] -> hidden states -> head
- learned and sinusoidal positions are added by the layer; their values are among its stages
- rotary positions add nothing to the rows. What is recorded is the angle of every channel pair, and the cos and sin
  that the layer prepares for attention
Tested in tests/trace/test_walk.py.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from inlayer.embeddings import Embeddings
from inlayer.errors import ConfigError, InputError
from inlayer.families.spec import Angles, PositionIdRule, Scaling
from inlayer.positions import SCHEMES, LearnedPositions, RotaryPositions, SinusoidalPositions
from inlayer.positions.rotary import one_angle_per_pair, plain_frequencies
from inlayer.trace.facts import RotaryFacts, Rotation

__all__ = ["RANDOM_POSITIONS", "ActiveLayer", "Rotary", "rotate", "scheme_of", "with_modules", "with_positions"]

RANDOM_POSITIONS = 2048  # block size of randomly initialized positions
DEFAULT_HEAD_DIM = 64  # for a model without rotary positions of its own


class ActiveLayer(NamedTuple):
    """The layer that a walk uses, with the model's own positions or others."""

    layer: Embeddings
    from_model: bool
    note: str


class Rotary(NamedTuple):
    """The rotary frequencies of one layer type, and the rotation of each position."""

    facts: RotaryFacts
    rotations: list[Rotation]


def scheme_of(layer: Embeddings) -> str:
    """Return the name of a layer's position scheme."""
    position = layer.position_embedding
    return "none" if position is None else type(position).__name__.removesuffix("Positions").lower()


def with_positions(layer: Embeddings, scheme: str | None, theta: float | None, init_std: float) -> ActiveLayer:
    """Return the layer with another scheme or theta; the layer itself if neither differs from its own."""
    own = scheme_of(layer)
    if scheme is not None and scheme not in SCHEMES:
        raise ConfigError(f"unknown positions {scheme!r}; choose one of {', '.join(SCHEMES)}")
    wanted = scheme or own
    if theta is not None and (not isinstance(theta, (int, float)) or isinstance(theta, bool)):
        raise InputError(f"theta is {theta!r}; it must be a number above 0, such as 10000")
    if theta is not None and wanted not in ("sinusoidal", "rotary"):
        hint = "" if scheme else "; choose one of them with positions"
        raise InputError(f"theta applies to sinusoidal and rotary positions, but these are {wanted}{hint}")
    if wanted == own and theta is None:
        return ActiveLayer(layer, True, "")
    width = layer.n_embd if layer.project == "rows" else layer.token_embedding.embedding_dim
    note = "replaces the model's own for this walk"
    if wanted == "learned":
        note = f"randomly initialized, {note}"
    changed = with_modules(layer, position_embedding=_positions(layer, wanted, theta, width, init_std))
    changed.position_id_rule = PositionIdRule()  # the model's own rule may fit only its own position table
    return ActiveLayer(changed, False, note)


def _positions(layer: Embeddings, scheme: str, theta: float | None, width: int, init_std: float) -> nn.Module | None:
    base = 10_000.0 if theta is None else theta
    own = layer.position_embedding
    if scheme == "none":
        return None
    if scheme == "learned":
        return LearnedPositions(RANDOM_POSITIONS, width, init_std=init_std, seed=0, dtype=layer.dtype)
    if scheme == "sinusoidal":
        return SinusoidalPositions(width, theta=base)
    if not isinstance(own, RotaryPositions):
        return RotaryPositions(min(DEFAULT_HEAD_DIM, width - width % 2), Angles(theta=base))
    angles = (
        replace(own.angles, theta=base)
        if isinstance(own.angles, Angles)
        else {layer_type: replace(one, theta=base) for layer_type, one in own.angles.items()}
    )
    return RotaryPositions(own.head_dim, angles, pairing=own.pairing, layout=own.layout, float32=own.float32)


def with_modules(layer: Embeddings, **modules: nn.Module | None) -> Embeddings:
    """Return a copy of the layer with some modules replaced; the others are shared, not copied."""
    changed = copy.copy(layer)
    changed._modules = dict(layer._modules)
    for name, module in modules.items():
        setattr(changed, name, module)
    return changed.eval()


def rotate(layer: Embeddings, position_ids: Tensor, length: int, dims: int) -> list[Rotary]:
    """Compute the rotary angles of positions (T,) in a text of `length` tokens, for each layer type."""
    rotary = layer.position_embedding
    if not isinstance(rotary, RotaryPositions):
        return []
    types: list[str | None] = [None] if isinstance(rotary.angles, Angles) else list(rotary.angles)
    return [_rotary(layer, rotary, layer_type, position_ids, length, dims) for layer_type in types]


def _rotary(
    layer: Embeddings, rotary: RotaryPositions, layer_type: str | None, position_ids: Tensor, length: int, dims: int
) -> Rotary:
    angles = rotary.angles if isinstance(rotary.angles, Angles) else rotary.angles[layer_type or ""]
    frequencies, factor = rotary.inverse_frequencies(length, layer_type)
    unscaled = plain_frequencies(rotary.rotated_dim(angles), angles.theta)
    # The last position is included because some scaling rules depend on the length of the text.
    with_last = torch.cat((position_ids, position_ids.new_tensor([max(length - 1, 0)])))
    cos, sin = (
        one_angle_per_pair(table[:-1], rotary.layout)[:, :dims].tolist()
        for table in layer.rotary(with_last, layer_type)
    )
    scaled_angles, unscaled_angles = (
        (position_ids[:, None].float() * frequency[:dims]).tolist() for frequency in (frequencies, unscaled)
    )
    facts = RotaryFacts(
        layer_type=layer_type,
        theta=float(angles.theta),
        head_dim=rotary.head_dim,
        n_pairs=len(frequencies),
        pairing=rotary.pairing,
        scaling=None if angles.scaling is None else _describe_scaling(angles.scaling),
        attention_factor=float(factor),
        frequencies=frequencies[:dims].tolist(),
        unscaled_frequencies=unscaled[:dims].tolist(),
    )
    rows = zip(scaled_angles, unscaled_angles, cos, sin, strict=True)
    return Rotary(facts, [Rotation(angles=a, unscaled_angles=u, cos=c, sin=s) for a, u, c, s in rows])


def _describe_scaling(scaling: Scaling) -> str:
    """Describe a scaling rule by its name, its factor and the length the model was trained on."""
    words = type(scaling).__name__.lower()
    factor, trained = getattr(scaling, "factor", None), getattr(scaling, "original_max_position_embeddings", None)
    words += "" if factor is None else f", factor {factor:g}"
    return words + ("" if trained is None else f", trained on {trained:,} tokens")
