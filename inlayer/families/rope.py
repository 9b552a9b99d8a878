"""The rotary settings of a config, in every spelling in use, as `Angles`.

- old: `rope_theta` beside `rope_scaling` {"type" or "rope_type", ...}; new: all of it in `rope_parameters`
- GPT-NeoX's `rotary_emb_base` and `rotary_pct`; Gemma-3's `rope_local_base_freq`; one dict per layer type
- if a config has both spellings, `rope_scaling` takes precedence, as in transformers
Tested against transformers for each family and each spelling in tests/families/.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inlayer.errors import ConfigError
from inlayer.families.fields import Fields, short
from inlayer.families.spec import Angles, DynamicNTK, Linear, Llama3, LongRope, Scaling, Yarn
from inlayer.families.table import Family

__all__ = ["read_angles"]

KNOWN_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


def read_angles(fields: Fields, family: Family) -> Angles | dict[str, Angles]:
    """One `Angles`, or one per layer type."""
    local = fields.optional_number("rope_local_base_freq")
    if local is not None:  # Gemma-3: layers with full and with sliding attention
        by_layer = Fields(fields.mapping("rope_parameters"), {})
        full = by_layer.mapping("full_attention") or {"rope_type": "default"}
        return {
            # the old spelling overrides the new one, except for its key "type"
            "full_attention": _one(full | fields.mapping("rope_scaling"), fields, family),
            "sliding_attention": _one({"rope_theta": local} | by_layer.mapping("sliding_attention"), fields, family),
        }
    rope = fields.mapping("rope_scaling") or fields.mapping("rope_parameters")
    by_layer_type = any(isinstance(value, Mapping) for value in rope.values())
    if by_layer_type and all(value is None or isinstance(value, Mapping) for value in rope.values()):
        # None is a layer type without positions
        return {layer: _one(settings, fields, family) for layer, settings in rope.items() if settings is not None}
    return _one(rope, fields, family)


def _one(settings: Mapping[str, Any], fields: Fields, family: Family) -> Angles:
    rope = Fields(settings, {})
    _, kind = rope.get("rope_type", "type")
    kind = family.rope_names.get(kind, kind) if isinstance(kind, str) else kind
    scaling = None if kind in (None, "default") else _scaling(kind, rope, fields)
    theta, partial = rope.optional_number("rope_theta"), rope.optional_number("partial_rotary_factor")
    if partial is None:
        partial = fields.number(family.rope_fields[1], otherwise=1.0)
    return Angles(
        theta=fields.number(family.rope_fields[0], otherwise=10_000.0) if theta is None else theta,
        # Families that always rotate whole heads ignore the fraction, unless there is a scaling rule.
        partial=partial if family.partial or scaling is not None else 1.0,
        scaling=scaling,
    )


def _scaling(kind: object, inner: Fields, fields: Fields) -> Scaling:
    if kind == "linear":
        return Linear(factor=_factor(inner))
    max_length = fields.size("max_position_embeddings", "n_positions")
    if kind == "dynamic":
        return DynamicNTK(factor=_factor(inner), original_max_position_embeddings=max_length)
    # Phi-3 has the original length outside the rope settings, where it takes precedence.
    original = fields.optional_size("original_max_position_embeddings")
    original = original or inner.optional_size("original_max_position_embeddings") or max_length
    factor = inner.optional_number("factor") or max_length / original
    if kind == "yarn":
        return Yarn(
            factor=factor,
            original_max_position_embeddings=original,
            beta_fast=inner.optional_number("beta_fast") or 32.0,
            beta_slow=inner.optional_number("beta_slow") or 1.0,
            mscale=inner.optional_number("mscale"),
            mscale_all_dim=inner.optional_number("mscale_all_dim"),
            attention_factor=inner.optional_number("attention_factor"),
            truncate=inner.flag("truncate", otherwise=True),
        )
    if kind == "llama3":
        low, high = inner.optional_number("low_freq_factor"), inner.optional_number("high_freq_factor")
        if low is None or high is None:
            raise ConfigError("rotary scaling 'llama3' needs low_freq_factor and high_freq_factor")
        return Llama3(
            factor=_factor(inner), low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=original
        )
    if kind == "longrope":
        return LongRope(
            short_factor=inner.numbers("short_factor"),
            long_factor=inner.numbers("long_factor"),
            original_max_position_embeddings=original,
            factor=factor,
            attention_factor=inner.optional_number("attention_factor"),
        )
    raise ConfigError(f"the config's rope type is {short(kind)}; supported are {', '.join(KNOWN_TYPES)}")


def _factor(inner: Fields) -> float:
    factor = inner.optional_number("factor")
    if factor is None:
        raise ConfigError("the config has a rotary scaling rule without a factor")
    return factor
