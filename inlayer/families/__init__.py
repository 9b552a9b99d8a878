"""Families: a model's config.json -> what its input layer and its head are.

config.json -> [LayerSpec] -> Embeddings, Head
- the only place that knows other projects' field names; everything past it speaks inlayer's own
- nested text configs (Gemma-3, LLaVA, Kimi-K2.5) are found by their model type
- a family that is not in the table is refused, never guessed: describe its layer by hand with `Embeddings(...)`
Checked against transformers, family by family, in tests/families/; docs/families.md lists them with their proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from inlayer.errors import ConfigError
from inlayer.families.fields import Fields, read_config, shown
from inlayer.families.rope import read_angles
from inlayer.families.table import FAMILIES, NESTED, Family
from inlayer.positions import Angles, PositionIdRule

__all__ = ["FAMILIES", "HeadSpec", "LayerSpec", "RotarySpec", "describe"]

WIDTH = ("n_embed", "hidden_size", "n_embd", "d_model", "dim")  # n_embed: BLOOM's published files; it wins there
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LENGTH = ("max_position_embeddings", "n_positions")
LARGEST_TABLE = 2**40  # values; the largest published tables have some 2**32


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """The arguments of `positions.Rotary`."""

    head_dim: int
    angles: Angles | dict[str, Angles]
    pairing: Literal["half", "interleaved"]
    layout: Literal["half", "interleaved", "single"] | None
    float32: bool


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """What stands at the other end of the model: the arguments of `Head`, and whether it shares the table."""

    tied: bool
    bias: bool
    input_scale: float
    scale: float
    divisor: float
    soft_cap: float | None


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """An input layer in inlayer's words. `Embeddings` takes the same names, so that a layer can be written by hand."""

    family: str
    vocab_size: int
    n_embd: int
    block_size: int | None  # rows of learned positions, or the length a rotary model was made for; None: no limit
    positions: Literal["none", "learned", "rotary"]
    rotary: RotarySpec | None
    position_id_rule: PositionIdRule
    position_offset: int
    padding_idx: int | None
    init_std: float
    scale: float
    multiplier: float
    token_types: int
    norm_eps: float | None
    dropout: float
    row_width: int | None
    projected: Literal["no", "rows", "sum"]
    head: HeadSpec


def describe(config: object) -> LayerSpec:
    """Read a config (dict, transformers config, or path) into a LayerSpec, or say what is wrong with it."""
    raw = read_config(config)
    outer_type = raw.get("model_type")
    named = outer_type if isinstance(outer_type, str) else ""
    nested = raw.get("text_config")
    if named not in FAMILIES and isinstance(nested, Mapping):
        # The text part decides, except on the tie, which is the whole model's; its type may be left to the outer level.
        tie = {name: raw[name] for name in ("tie_word_embeddings",) if raw.get(name) is not None}
        kind = nested.get("model_type")
        raw = {**nested, "model_type": NESTED.get(named) if kind is None else kind, **tie}
    elif named in NESTED:
        raise ConfigError(f"a {named} config keeps its text part in text_config, which is missing or not an object")
    model_type = raw.get("model_type")
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None or not isinstance(model_type, str):
        known = ", ".join(sorted([*FAMILIES, *NESTED]))
        raise ConfigError(
            f"unknown model type {shown(model_type or outer_type)}; known are {known}. "
            "Another layer can be described by hand: inlayer.Embeddings(vocab_size, n_embd, positions=...)"
        )
    return _translate(model_type, family, Fields(raw, family.defaults))


def _translate(name: str, family: Family, fields: Fields) -> LayerSpec:
    vocab_size, n_embd = fields.size("vocab_size"), fields.size(*WIDTH)
    padding_idx = fields.index("pad_token_id") if family.pads and family.padding_idx is None else family.padding_idx
    if padding_idx is not None and padding_idx >= vocab_size:
        raise ConfigError(
            f"the config's pad_token_id {padding_idx} lies outside its table of {vocab_size} rows (0..{vocab_size - 1})"
        )
    length = None if family.positions == "none" else fields.size(*LENGTH)
    row_width = fields.optional_size("word_embed_proj_dim", "embedding_size") if family.projected != "no" else None
    if row_width == n_embd and not family.projects_equal_widths:
        row_width = None
    token_types = fields.size("type_vocab_size") if family.token_types else 0
    _check_tables(max(n_embd, row_width or 0), vocab_size, length or 0, token_types, row_width or 0)
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
        projected=family.projected if row_width is not None else "no",
        head=_head(family, fields, n_embd),
    )


def _check_tables(width: int, *rows: int) -> None:
    """Each size may be possible and their product still be damage: torch would overflow on it."""
    if max(rows) * width > LARGEST_TABLE:
        raise ConfigError(
            f"the config asks for a table of {max(rows):,} x {width:,} values; at most {LARGEST_TABLE:,} are believed"
        )


def _rotary(family: Family, fields: Fields, n_embd: int) -> RotarySpec:
    head_dim = fields.optional_size("qk_rope_head_dim", "head_dim") or n_embd // fields.size(*HEADS)
    angles = read_angles(fields, family.rope_fields, renamed=family.rope_names, partial_by_default=family.partial)
    return RotarySpec(
        head_dim=head_dim,
        angles=angles,
        pairing=family.pairing,
        layout=family.layout,
        float32=family.float32_tables,
    )


def _position_id_rule(family: Family, padding_idx: int | None) -> PositionIdRule:
    if family.numbered_by != "ids":
        return PositionIdRule(by=family.numbered_by)
    if padding_idx is None:
        raise ConfigError("the config has no pad_token_id; this family numbers its positions from it")
    return PositionIdRule(by="ids", start=padding_idx + 1, padding_idx=padding_idx)


def _dropout(family: Family, fields: Fields) -> float:
    share = fields.number(family.dropout, otherwise=0.0) if family.dropout else 0.0
    if not 0 <= share <= 1:
        raise ConfigError(f"the config's dropout is {share}; expected a share in 0..1")
    return share


def _head(family: Family, fields: Fields, n_embd: int) -> HeadSpec:
    tied = fields.flag("tie_word_embeddings", otherwise=False)
    # Files say it by the tie; transformers 5 ties every T5 and keeps the scale in a field of its own.
    scaled = family.head_input_scaled and fields.flag("scale_decoder_outputs", otherwise=tied)
    return HeadSpec(
        tied=tied,
        bias=family.head_bias,
        input_scale=n_embd**-0.5 if scaled else 1.0,
        scale=fields.number("logit_scale", otherwise=1.0),
        divisor=fields.number("logits_scaling", otherwise=1.0),
        soft_cap=fields.optional_number("final_logit_softcapping"),
    )
