"""Step 6 of a walk: the position scheme, its replacement on request, and the rotary angles.

text -> ids -> rows -> [+ positions] -> hidden states -> head
- learned and sinusoidal positions are added by the layer; their values are among its stages
- rotary positions add nothing to the rows. A walk records the angle of every channel pair, and the cos and sin that the
  layer prepares for attention
Tested in tests/trace/test_walk.py.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import torch
from torch import nn

from inlayer.embeddings import Embeddings
from inlayer.errors import InputError
from inlayer.families.rope_scaling_settings import Llama3Scaling, RopeScaling, YarnScaling
from inlayer.families.spec import PositionIdRule, RopeParameters
from inlayer.positions import SCHEMES, LearnedPositions, RotaryPositions, SinusoidalPositions
from inlayer.positions.rope_scaling import plain_frequencies, scaled_frequencies
from inlayer.positions.rotary import deduplicate_angles
from inlayer.trace.facts import RotaryFacts, Rotation, ScaledFrequencies

RANDOM_POSITIONS = 2048  # block size of randomly initialized positions
DEFAULT_HEAD_DIM = 64  # for a model without rotary positions
COMPARED_LENGTH = 64  # original context length of the compared scalings; short, so that one dial shows their effect
COMPARED_SCALINGS: dict[str, RopeScaling] = {
    "YaRN": YarnScaling(factor=4.0, original_max_position_embeddings=COMPARED_LENGTH),
    "Llama-3": Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=COMPARED_LENGTH
    ),
}
Rotary: TypeAlias = tuple[RotaryFacts, list[Rotation]]  # one layer type; one rotation per position


class ActiveLayer(NamedTuple):
    """The layer that a walk uses, with the model's positions or replacements."""

    layer: Embeddings
    from_model: bool
    note: str


def scheme_of(layer: Embeddings) -> str:
    position = layer.position_embedding
    return "none" if position is None else type(position).__name__.removesuffix("Positions").lower()


def with_positions(layer: Embeddings, scheme: str | None, theta: float | None, init_std: float) -> ActiveLayer:
    """Return the layer with a different scheme or theta, or the layer itself if nothing changes."""
    own = scheme_of(layer)
    if scheme is not None and scheme not in SCHEMES:
        raise InputError(f"positions is {scheme!r}; it must be one of {', '.join(SCHEMES)}")
    chosen = scheme or own
    if theta is not None and chosen not in ("sinusoidal", "rotary"):
        hint = "" if scheme else "; choose one of them with positions"
        raise InputError(f"theta applies to sinusoidal and rotary positions, but these are {chosen}{hint}")
    if chosen == own and theta is None:
        return ActiveLayer(layer, True, "")
    positions = _positions(layer, chosen, 10_000.0 if theta is None else theta, init_std)
    changed = with_modules(layer, position_embedding=positions)
    changed.position_id_rule = PositionIdRule()  # the model's rule may fit only its position table
    drawn = "randomly initialized, " if chosen == "learned" else ""
    return ActiveLayer(changed, False, f"{drawn}replaces the model's positions for this walk")


def _positions(layer: Embeddings, scheme: str, base: float, init_std: float) -> nn.Module | None:
    """Return the position module of a scheme, or None for "none"."""
    own = layer.position_embedding
    width = layer.n_embd if layer.projection_at == "rows" else layer.token_embedding.embedding_dim
    if scheme == "none":
        return None
    if scheme == "learned":
        return LearnedPositions(RANDOM_POSITIONS, width, init_std=init_std, seed=0, dtype=layer.dtype)
    if scheme == "sinusoidal":
        layout = own.layout if isinstance(own, SinusoidalPositions) else "interleaved"
        return SinusoidalPositions(width, theta=base, layout=layout)
    if not isinstance(own, RotaryPositions):
        return RotaryPositions(min(DEFAULT_HEAD_DIM, width - width % 2), RopeParameters(theta=base))
    parameters = own.rope_parameters
    if isinstance(parameters, RopeParameters):
        parameters = replace(parameters, theta=base)
    else:
        parameters = {layer_type: replace(settings, theta=base) for layer_type, settings in parameters.items()}
    return RotaryPositions(
        own.head_dim, parameters, pairing=own.pairing, layout=own.layout, keep_float32=own.keep_float32
    )


def with_modules(layer: Embeddings, **modules: nn.Module | None) -> Embeddings:
    """Return a copy of the layer with some modules replaced; the others are shared, not copied."""
    changed = copy.copy(layer)
    changed._modules = dict(layer._modules)
    for name, module in modules.items():
        setattr(changed, name, module)
    return changed.eval()


def rotate(layer: Embeddings, shown: range, length: int, dims: int) -> list[Rotary]:
    """Compute rotary angles for some tokens of a text with `length` tokens, for each layer type."""
    rotary, position_T, rotations = layer.position_embedding, torch.arange(shown.start, shown.stop), list[Rotary]()
    if not isinstance(rotary, RotaryPositions):
        return []
    own = rotary.rope_parameters
    for layer_type, settings in own.items() if isinstance(own, dict) else [(None, own)]:
        frequencies, factor = rotary.inverse_frequencies(length, layer_type)
        unscaled = plain_frequencies(rotary.rotated_dim(settings), settings.theta)
        # The last position is included because some kinds of RoPE scaling depend on the length of the text.
        tables = layer.rotary(torch.cat((position_T, torch.tensor([max(length - 1, 0)]))), layer_type)
        cos, sin = (deduplicate_angles(table[:-1], rotary.layout)[:, :dims].tolist() for table in tables)
        angles, plain = (torch.outer(position_T.float(), rates[:dims]).tolist() for rates in (frequencies, unscaled))
        facts = RotaryFacts(
            layer_type=layer_type,
            theta=float(settings.theta),
            head_dim=settings.head_dim or rotary.head_dim,
            n_pairs=len(frequencies),
            pairing=rotary.pairing,
            scaling=None if settings.scaling is None else _describe_scaling(settings.scaling),
            attention_factor=float(factor),
            frequencies=frequencies[:dims].tolist(),
            unscaled_frequencies=unscaled[:dims].tolist(),
            rescaled=[] if settings.scaling else _rescale(rotary.rotated_dim(settings), float(settings.theta), dims),
        )
        rows = zip(angles, plain, cos, sin, strict=True)
        rotations.append((facts, [Rotation(angles=a, unscaled_angles=u, cos=c, sin=s) for a, u, c, s in rows]))
    return rotations


def _rescale(dim: int, theta: float, dims: int) -> list[ScaledFrequencies]:
    rescaled = []
    for name, scaling in COMPARED_SCALINGS.items() if theta > 1 else ():  # YaRN divides by the logarithm of theta
        frequencies, factor = scaled_frequencies(scaling, dim, theta, torch.tensor(COMPARED_LENGTH))
        shown = frequencies[:dims].tolist()
        rescaled.append(ScaledFrequencies(name=name, frequencies=shown, attention_factor=float(factor)))
    return rescaled


def _describe_scaling(scaling: RopeScaling) -> str:
    """Describe RoPE scaling by its name, its factor, and the length the model was trained on."""
    factor, trained = getattr(scaling, "factor", None), getattr(scaling, "original_max_position_embeddings", None)
    words = scaling.kind + ("" if factor is None else f", factor {factor:g}")
    return words + ("" if trained is None else f", original context length {trained:,}")
