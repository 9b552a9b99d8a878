"""Families: a model's config.json -> the settings of its input layer and head. No torch.

config.json -> [LayerSpec] -> Embeddings, Head
- the only package that knows other projects' field names
- nested text configs (Gemma-3, LLaVA, Kimi-K2.5) are found by their model type
- rotary settings: `rope_theta` beside `rope_scaling` in old files, all of it in `rope_parameters` in new ones. If both
  are there, `rope_scaling` takes precedence, as in transformers
- a family that is not in the table (families/table.py) is an error, never a guess
Tested against transformers, family by family, in tests/families/; docs/families.md lists the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from inlayer.errors import ConfigError
from inlayer.families import spec
from inlayer.families.fields import Fields, read_config, short
from inlayer.families.spec import Angles, HeadSpec, LayerSpec, PositionIdRule, RotarySpec, Scaling
from inlayer.families.table import FAMILIES, NESTED, Family

__all__ = ["FAMILIES", "HeadSpec", "LayerSpec", "RotarySpec", "describe"]

WIDTH = ("n_embed", "hidden_size", "n_embd", "d_model", "dim")  # n_embed comes first for BLOOM's published files
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LENGTH = ("max_position_embeddings", "n_positions")
ROPE_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")
MAX_TABLE = 2**40  # values; the largest published tables have about 2**32


def describe(config: object) -> LayerSpec:
    """Interpret a model config as an input layer and a head, without building them.

    Args:
        config: A dict, a transformers config object, or a path to config.json or its folder.

    Returns:
        The layer's settings, with the names of the arguments of `Embeddings`.

    Raises:
        ConfigError: If the config is malformed or its family is not supported.

    Example:
        >>> describe({"model_type": "gpt2"}).positions
        'learned'
    """
    raw = read_config(config)
    outer_type = raw.get("model_type")
    named = outer_type if isinstance(outer_type, str) else ""
    nested = raw.get("text_config")
    if named not in FAMILIES and isinstance(nested, Mapping):
        # The text part decides everything except tying, which belongs to the whole model. It may lack a model_type.
        tie = {name: raw[name] for name in ("tie_word_embeddings",) if raw.get(name) is not None}
        kind = nested.get("model_type")
        raw = {**nested, "model_type": NESTED.get(named) if kind is None else kind, **tie}
    elif named in NESTED:
        raise ConfigError(f"a {named} config needs its text part in text_config, which is missing or not an object")
    model_type = raw.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None or not isinstance(model_type, str):
        kind, known = short(model_type or outer_type), [*FAMILIES, *NESTED]
        similar = ", ".join(get_close_matches(kind.strip("'"), known, cutoff=0.5)) or "none"
        raise ConfigError(
            f"unknown model type {kind}; similar ones are {similar} (inlayer.families.FAMILIES has all {len(known)}). "
            "For another model, build its layer with inlayer.Embeddings(vocab_size, n_embd, positions=...)"
        )
    return _translate(model_type, family, Fields(raw, family.defaults))


def _translate(name: str, family: Family, fields: Fields) -> LayerSpec:
    vocab_size, n_embd = fields.size("vocab_size"), fields.size(*WIDTH)
    padding_idx = fields.index("pad_token_id") if family.pads and family.padding_idx is None else family.padding_idx
    if padding_idx is not None and padding_idx >= vocab_size:
        raise ConfigError(
            f"the config's pad_token_id {padding_idx} is outside its table of {vocab_size} rows (0..{vocab_size - 1})"
        )
    length = None if family.positions == "none" else fields.size(*LENGTH)
    row_width = fields.optional_size("word_embed_proj_dim", "embedding_size") if family.project else None
    if row_width == n_embd and not family.projects_equal_widths:
        row_width = None
    token_types = fields.size("type_vocab_size") if family.token_types else 0
    rows, width = max(vocab_size, length or 0, token_types, row_width or 0), max(n_embd, row_width or 0)
    if rows * width > MAX_TABLE:  # each can be valid and their product still overflow in torch
        raise ConfigError(
            f"the config describes a table of {rows:,} x {width:,} values; the maximum is {MAX_TABLE:,} values"
        )
    return LayerSpec(
        family=name,
        vocab_size=vocab_size,
        n_embd=n_embd,
        block_size=length,
        positions=family.positions,
        rotary=_rotary(family, fields, n_embd) if family.positions == "rotary" else None,
        position_id_rule=_position_id_rule(family, padding_idx),
        position_offset=family.position_offset,
        padding_idx=padding_idx,
        init_std=fields.number("initializer_range", "init_std", "initializer_factor", otherwise=0.02),
        scale=float(n_embd**0.5) if family.scaled == "sqrt" else 1.0,
        multiplier=fields.number("embedding_multiplier", otherwise=1.0) if family.scaled == "multiplier" else 1.0,
        token_types=token_types,
        norm_eps=fields.number("layer_norm_eps", "layer_norm_epsilon", otherwise=1e-5) if family.normed else None,
        dropout=_dropout(family, fields),
        row_width=row_width,
        project=family.project if row_width is not None else None,
        head=_head(family, fields, n_embd),
    )


def _rotary(family: Family, fields: Fields, n_embd: int) -> RotarySpec:
    return RotarySpec(
        head_dim=fields.optional_size("qk_rope_head_dim", "head_dim") or n_embd // fields.size(*HEADS),
        angles=_angles(family, fields),
        pairing=family.pairing,
        layout=family.layout,
        float32=family.float32_tables,
    )


def _angles(family: Family, fields: Fields) -> Angles | dict[str, Angles]:
    """One `Angles`, or one per layer type."""
    local = fields.optional_number("rope_local_base_freq")
    if local is not None:  # Gemma-3: layers with full and with sliding attention
        by_layer = Fields(fields.mapping("rope_parameters"), {})
        full = by_layer.mapping("full_attention") or {"rope_type": "default"}
        return {
            # the old spelling overrides the new one, except for its key "type"
            "full_attention": _one(full | fields.mapping("rope_scaling"), family, fields),
            "sliding_attention": _one({"rope_theta": local} | by_layer.mapping("sliding_attention"), family, fields),
        }
    rope = fields.mapping("rope_scaling") or fields.mapping("rope_parameters")
    by_layer_type = any(isinstance(value, Mapping) for value in rope.values())
    if by_layer_type and all(value is None or isinstance(value, Mapping) for value in rope.values()):
        # None is a layer type without positions
        return {layer_type: _one(inner, family, fields) for layer_type, inner in rope.items() if inner is not None}
    return _one(rope, family, fields)


def _one(settings: Mapping[str, Any], family: Family, fields: Fields) -> Angles:
    rope = Fields(settings, {})
    _, kind = rope.get("rope_type", "type")
    kind = family.rope_names.get(kind, kind) if isinstance(kind, str) else kind
    scaling = None if kind in (None, "default") else _scaling(kind, rope, fields)
    theta, partial = rope.optional_number("rope_theta"), rope.optional_number("partial_rotary_factor")
    base_name, partial_name = family.rope_fields
    if partial is None:
        partial = fields.number(partial_name, otherwise=1.0)
    return Angles(
        theta=fields.number(base_name, otherwise=10_000.0) if theta is None else theta,
        # families that always rotate whole heads ignore the fraction, unless there is a scaling rule
        partial=partial if family.partial or scaling is not None else 1.0,
        scaling=scaling,
    )


def _scaling(kind: object, inner: Fields, fields: Fields) -> Scaling:
    if kind == "linear":
        return spec.Linear(factor=_factor(inner))
    max_length = fields.size("max_position_embeddings", "n_positions")
    if kind == "dynamic":
        return spec.DynamicNTK(factor=_factor(inner), original_max_position_embeddings=max_length)
    # Phi-3 has the original length outside the rope settings, where it takes precedence.
    original = fields.optional_size("original_max_position_embeddings")
    original = original or inner.optional_size("original_max_position_embeddings") or max_length
    factor = inner.optional_number("factor") or max_length / original
    if kind == "yarn":
        return spec.Yarn(
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
        return spec.Llama3(
            factor=_factor(inner), low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=original
        )
    if kind == "longrope":
        return spec.LongRope(
            short_factor=inner.numbers("short_factor"),
            long_factor=inner.numbers("long_factor"),
            original_max_position_embeddings=original,
            factor=factor,
            attention_factor=inner.optional_number("attention_factor"),
        )
    raise ConfigError(f"the config's rope type is {short(kind)}; supported are {', '.join(ROPE_TYPES)}")


def _factor(inner: Fields) -> float:
    if (factor := inner.optional_number("factor")) is None:
        raise ConfigError("the config has a rotary scaling rule without a factor")
    return factor


def _position_id_rule(family: Family, padding_idx: int | None) -> PositionIdRule:
    if family.position_ids_by != "ids":
        return PositionIdRule(by=family.position_ids_by)
    if padding_idx is None:
        raise ConfigError("the config has no pad_token_id; this family needs it to number its positions")
    return PositionIdRule(by="ids", start=padding_idx + 1, padding_idx=padding_idx)


def _dropout(family: Family, fields: Fields) -> float:
    rate = fields.number(family.dropout, otherwise=0.0) if family.dropout else 0.0
    if not 0 <= rate <= 1:
        raise ConfigError(f"the config's {family.dropout} is {rate}; a dropout rate is in 0..1")
    return rate


def _head(family: Family, fields: Fields, n_embd: int) -> HeadSpec:
    tied = fields.flag("tie_word_embeddings", otherwise=False)
    # Files imply the scale by tying; transformers 5 ties every T5 and has a field of its own for the scale.
    scaled = family.head_input_scaled and fields.flag("scale_decoder_outputs", otherwise=tied)
    return HeadSpec(
        tied=tied,
        bias=family.head_bias,
        input_scale=n_embd**-0.5 if scaled else 1.0,
        scale=fields.number("logit_scale", otherwise=1.0),
        divisor=fields.number("logits_scaling", otherwise=1.0),
        soft_cap=fields.optional_number("final_logit_softcapping"),
    )
