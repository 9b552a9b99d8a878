"""describe: a config.json becomes the settings of an input layer and a head.

config.json -> [LayerSpec] -> Embeddings, Head
- nested text configs (Gemma-3, LLaVA, Kimi-K2.5) are found by their model type
- a family that is not in the table (families/model_types.py) is an error, unless the config and the tensors look like
  an ordinary rotary decoder (families/generic.py); the result is then labeled as generic
- see also: rotary settings (families/rope.py), n-gram memories (families/ngram_configs.py)
Tested against transformers, family by family, in tests/families/; docs/families.md lists the results.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from typing import Any

import ml_dtypes
import numpy as np

from inlayer.errors import ConfigError
from inlayer.families.config_reader import ConfigReader, invalid_error, read_config, short_repr
from inlayer.families.family import Family
from inlayer.families.generic import check_generic
from inlayer.families.model_types import FAMILIES, GENERIC, INPUT_CONFIG_FIELDS, TEXT_TYPES
from inlayer.families.ngram_configs import read_ngrams
from inlayer.families.rope import N_HEAD_FIELDS, read_rotary
from inlayer.families.spec import (
    FULL,
    MAX_LAYERS,
    AlibiSpec,
    HeadSpec,
    LayerSpec,
    NormKind,
    PerLayerSpec,
    PositionIdRule,
    RelativeBucketSpec,
    ValueEmbeddingSpec,
)

# n_embed comes first for BLOOM's published files
WIDTH_FIELDS = ("n_embed", "hidden_size", "n_embd", "d_model", "dim", "emb_dim")
ROW_WIDTH_FIELDS = ("word_embed_proj_dim", "embedding_size", "input_embedding_size", "embedding_rank")
LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "model_max_length")
EPSILON_FIELDS = ("layer_norm_eps", "layer_norm_epsilon", "norm_eps", "rms_norm_eps")
WHOLE_MODEL = ("tie_word_embeddings", "image_token_id", "vision_config", "audio_config")
MPT_BIAS_MAX = 8.0  # transformers does not read alibi_bias_max
MAX_TABLE = 2**40  # table values; the largest published tables have about 2**32


def describe(config: object, *, tensor_names: Callable[[], Collection[str]] | None = None) -> LayerSpec:
    """Interpret a model config as an input layer and a head, without building them.

    Args:
        config: A dict, a transformers config object, or a path to config.json or its folder. A LayerSpec is
            returned unchanged.
        tensor_names: Returns the names of a checkpoint's tensors. With it, an unknown model type may be opened as
            generic if the config and the tensors are ordinary; the result's family is then labeled.

    Returns:
        The layer's settings, with the names of the arguments of `Embeddings`.

    Raises:
        ConfigError: If the config is malformed or its family is not supported.
        MissingFileError: If it is a path and there is no such file.

    Example:
        >>> describe({"model_type": "gpt2"}).positions
        'learned'
    """
    if isinstance(config, LayerSpec):
        return config
    raw = read_config(config)
    fields, is_text_part = _select_text_config(raw)
    model_type = fields.get("model_type")
    if isinstance(model_type, str) and model_type in FAMILIES:
        family = FAMILIES[model_type]
        return _translate(model_type, family, ConfigReader(fields, family.defaults))
    named = model_type or raw.get("model_type")
    if named is None:
        types = f"one of the {len(FAMILIES)} supported types (inlayer.families.FAMILIES)"
        raise ConfigError(f"the config has no model_type, so the layer is unknown; set it to {types}")
    # A text part cannot have another text part, so a type of TEXT_TYPES may be unknown, but is not similar to itself.
    known = [name for name in (*FAMILIES, *TEXT_TYPES) if name != model_type]
    message = _unknown_type_message(short_repr(named), known)
    if tensor_names is None or not isinstance(model_type, str):
        raise ConfigError(message)
    try:
        check_generic(fields, tensor_names(), is_text_part=is_text_part)
    except ConfigError as reason:
        raise ConfigError(f"{message}. It is not opened as generic: {reason}") from reason
    return _translate(f"generic ({short_repr(named)})", GENERIC, ConfigReader(fields, {}))


def _select_text_config(raw: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the fields that describe the text model, with its model_type, and whether they come from text_config.

    They may be a part of the config, but what belongs to the whole model always comes from the outer level.
    """
    model_type = raw.get("model_type")
    outer_type = model_type if isinstance(model_type, str) else ""
    whole = {name: raw[name] for name in WHOLE_MODEL if raw.get(name) is not None}
    fields = raw
    inner = raw.get(INPUT_CONFIG_FIELDS.get(outer_type, ""))
    if isinstance(inner, Mapping):  # it is completed by the outer fields
        outer = {name: value for name, value in raw.items() if not str(name).startswith("rope_")}
        fields = {**outer, **inner, "model_type": outer_type, **whole}
    nested = fields.get("text_config")
    if isinstance(nested, Mapping) and (outer_type not in FAMILIES or fields.get("vocab_size") is None):
        text_type = nested.get("model_type")
        if text_type is None:
            text_type = TEXT_TYPES.get(outer_type)
        return {**nested, "model_type": text_type, **whole}, True
    if outer_type in TEXT_TYPES:
        problem = "which is missing or not an object"
        raise ConfigError(f"the {outer_type} config needs its text part in text_config, {problem}")
    return fields, False


def _unknown_type_message(kind: str, known: list[str]) -> str:
    similar = get_close_matches(kind.strip("'"), known, cutoff=0.65)
    listed = f"; similar ones are {', '.join(similar)}" if similar else ""
    return (
        f"unknown model type {kind}{listed} (inlayer.families.FAMILIES lists all {len(FAMILIES)}). "
        "For another model, build its layer with inlayer.Embeddings(vocab_size, n_embd, positions=...)"
    )


def _translate(name: str, family: Family, config: ConfigReader) -> LayerSpec:
    vocab_size, n_embd = config.size("vocab_size") + family.input_only_rows, config.size(*WIDTH_FIELDS)
    padding_idx = config.index(family.padding_row) if isinstance(family.padding_row, str) else family.padding_row
    if padding_idx is not None and padding_idx >= vocab_size:
        rows = f"{vocab_size:,} rows (0..{vocab_size - 1})"
        raise ConfigError(f"the config's pad_token_id {padding_idx} is outside its table of {rows}")
    positions = family.positions
    if family.positions_flag and config.get(family.positions_flag)[1] not in (True, "rope"):
        positions = "none"
    if family.alibi_flag and config.flag(family.alibi_flag, default=False):
        positions = "none"
    length = config.size(*LENGTH_FIELDS) if positions in ("learned", "sinusoidal") else None
    if positions == "rotary":
        length = config.optional_size(*LENGTH_FIELDS)
    row_width = config.optional_size(*ROW_WIDTH_FIELDS) if family.projection_at else None
    if family.projects_equal_widths:
        row_width = row_width or n_embd
    elif row_width == n_embd:
        row_width = None
    n_token_types = config.size("type_vocab_size", minimum=0) if family.token_types else 0
    (scale, input_multiplier), norm = _scale(family, config, n_embd), _norm(family, config)
    _check_table_size(max(vocab_size, length or 0, n_token_types, row_width or 0), max(n_embd, row_width or 0))
    return LayerSpec(
        family=name,
        vocab_size=vocab_size,
        n_embd=n_embd,
        block_size=length + family.position_start if length else None,
        positions=positions,
        rotary=read_rotary(family, config, n_embd) if positions == "rotary" else None,
        position_id_rule=_position_id_rule(family, padding_idx),
        position_offset=family.position_offset,
        sinusoidal_if_missing=family.sinusoidal_if_missing,
        padding_idx=padding_idx,
        init_std=config.number("initializer_range", "init_std", "initializer_factor", default=0.02),
        scale=scale,
        round_scale=family.round_scale is True and family.scale_at == "rows",
        round_input_multiplier=family.round_scale is True and family.scale_at == "inputs",
        input_multiplier=input_multiplier,
        n_token_types=n_token_types,
        norm=norm or "layernorm",
        norm_at=family.norm_at,
        positions_first=family.positions_first,
        norm_eps=config.number(*EPSILON_FIELDS, default=1e-5) if norm else None,
        mask_padding=family.mask_padding,
        n_streams=config.size(family.streams_field) if family.streams_field else 1,
        dropout=_dropout(family, config),
        row_width=row_width,
        projection_at=family.projection_at if row_width is not None else None,
        per_layer=_per_layer(family, config, n_embd, padding_idx),
        value_embeddings=_value_embeddings(config, vocab_size) if family.value_embeddings else None,
        head=_head(family, config, n_embd),
        ngrams=read_ngrams(family.ngrams, config, vocab_size, n_embd),
        relative=_relative(family, config),
    )


def _scale(family: Family, config: ConfigReader, n_embd: int) -> tuple[float, float]:
    """Return the factor for rows only (Gemma), and the factor for rows and inputs_embeds (Granite); 1 if unused."""
    if family.scale_at is None or (family.scale_flag and not config.flag(family.scale_flag, default=False)):
        return 1.0, 1.0
    factor = config.number(family.scale_field, default=1.0) if family.scale_field else float(n_embd**0.5)
    if family.round_scale == "bfloat16":
        factor = float(np.float32(factor).astype(ml_dtypes.bfloat16))
    has_encoder = config.flag("is_encoder_decoder", default=True)
    rows_only = family.scale_at == "rows" or (family.scale_at == "encoder_rows" and has_encoder)
    return (factor, 1.0) if rows_only else (1.0, factor)


def _relative(family: Family, config: ConfigReader) -> AlibiSpec | RelativeBucketSpec | None:
    """Return the relative positions, or None if the family has none or the config switches them off."""
    kind = family.relative
    if kind == "mpnet":  # MPNet uses T5's buckets, regardless of the config
        return RelativeBucketSpec(kind="t5", buckets=32, max_distance=128)
    if kind == "t5":
        buckets = config.optional_size("relative_attention_num_buckets") or 32
        longest = config.optional_size("relative_attention_max_distance") or 128
        return RelativeBucketSpec(kind="t5", buckets=buckets, max_distance=longest)
    if kind == "deberta":
        if not config.flag("relative_attention", default=False):
            return None
        longest = config.index("max_relative_positions") or config.size(*LENGTH_FIELDS)
        groups = config.index("position_buckets") or None
        return RelativeBucketSpec(kind="deberta", buckets=groups, max_distance=longest)
    if kind is None or (family.alibi_flag and not config.flag(family.alibi_flag, default=False)):
        return None
    bias_max = MPT_BIAS_MAX if kind == "alibi_mpt" else None
    return AlibiSpec(heads=config.size(*N_HEAD_FIELDS), bias_max=bias_max, bfloat16_slopes=kind == "alibi_bf16")


def _per_layer(family: Family, config: ConfigReader, n_embd: int, padding_idx: int | None) -> PerLayerSpec | None:
    """Return the per-layer embeddings, or None if the family or the config has none."""
    if family.per_layer is None or config.get_or_none("hidden_size_per_layer_input")[1] in (None, 0):
        return None
    spec = PerLayerSpec(
        rows=0 if family.per_layer == "projected" else config.size("vocab_size_per_layer_input"),
        n_layers=config.size("num_hidden_layers"),
        width=config.size("hidden_size_per_layer_input"),
        norm_eps=config.number("rms_norm_eps", default=1e-6),
        padding_idx=padding_idx,
        round_factors=family.per_layer == "rounded",
    )
    _check_table_size(max(spec.rows, n_embd), spec.n_layers * spec.width)
    if padding_idx is not None and 0 < spec.rows <= padding_idx:
        raise ConfigError(
            f"the config's pad_token_id {padding_idx} is outside its per-layer table of {spec.rows:,} rows"
        )
    return spec


def _value_embeddings(config: ConfigReader, vocab_size: int) -> ValueEmbeddingSpec:
    """Return NeoMME's table, which the first and the last block with full attention read."""
    count, (_, types) = min(config.size("num_hidden_layers"), MAX_LAYERS), config.get("layer_types")
    full = [layer for layer in range(count) if (layer + 1) % 6 == 0 or layer == count - 1]
    if isinstance(types, (list, tuple)):
        full = [layer for layer, kind in enumerate(types[:MAX_LAYERS]) if kind == FULL]
    spec = ValueEmbeddingSpec(
        rows=vocab_size,
        width=config.size("num_key_value_heads") * config.size("head_dim"),
        layer_indices=tuple(sorted({*full[:1], *full[-1:]})),
    )
    _check_table_size(spec.rows, spec.width)
    return spec


def _check_table_size(rows: int, width: int) -> None:
    """Reject a table whose rows x width would overflow in torch, even if each factor is valid by itself."""
    if rows * width > MAX_TABLE:
        raise ConfigError(f"the config describes a table of {rows:,} x {width:,} values; the maximum is {MAX_TABLE:,}")


def _norm(family: Family, config: ConfigReader) -> NormKind | None:
    if not config.flag("layernorm_embedding", default=True):  # TrOCR
        return None
    has_bias = family.norm == "layernorm_no_bias" and config.flag("norm_bias", default=False)  # ModernBERT
    return "layernorm" if has_bias else family.norm


def _position_id_rule(family: Family, padding_idx: int | None) -> PositionIdRule:
    if family.position_ids_by != "ids":
        return PositionIdRule(by=family.position_ids_by, start=family.position_start)
    if padding_idx is None:
        raise ConfigError("the config has no pad_token_id; this family needs it to number its positions")
    return PositionIdRule(by="ids", start=padding_idx + 1, padding_idx=padding_idx)


def _dropout(family: Family, config: ConfigReader) -> float:
    rate = config.number(family.dropout_field, default=0.0) if family.dropout_field else 0.0
    if not 0 <= rate <= 1:
        raise invalid_error(family.dropout_field or "dropout", rate, "a dropout rate in 0..1")
    return rate


def _head(family: Family, config: ConfigReader, n_embd: int) -> HeadSpec:
    classes = config.get("architectures")[1]
    is_untied = isinstance(classes, list) and any(name in classes for name in family.untied_classes)
    tied = config.flag("tie_word_embeddings", default=False) and not is_untied
    decoder_table = family.decoder_table or not config.flag("share_encoder_decoder_embeddings", default=True)
    vocab_size = config.optional_size("decoder_vocab_size") if decoder_table else None
    if family.input_only_rows:
        vocab_size = config.size("vocab_size")
    # In older configs, a tied head implies the scale. transformers 5 ties every T5 head and stores the scale in a
    # separate field.
    scaled = family.head_input_scaled and config.flag("scale_decoder_outputs", default=tied)
    width = config.optional_size("dim_model_base") or n_embd  # MiniCPM: the width before scaling up
    mup_multiplier = config.number("logits_mup_width_multiplier", default=1.0)
    if not mup_multiplier:
        raise invalid_error("logits_mup_width_multiplier", 0, "another number, because logits are divided by it")
    factor, multiplies = config.number("logits_scaling", default=1.0), family.logits_scaling_multiplies
    scale = config.number("logit_scale", "output_multiplier", "lm_head_multiplier", default=1.0)
    return HeadSpec(
        tied=tied and not decoder_table,
        vocab_size=vocab_size,
        n_embd=config.optional_size("output_embedding_size"),
        bias=family.head_bias and config.flag("decoder_bias", default=True),
        hidden_scale=n_embd**-0.5 if scaled else width / n_embd / mup_multiplier,
        logit_scale=factor if multiplies else scale,
        logit_divisor=1.0 if multiplies else factor,
        soft_cap=config.optional_number("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap"),
    )
