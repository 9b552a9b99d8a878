"""Family: the traits that distinguish model types' input layers and heads.

config.json -> [Family] -> LayerSpec
- the values for each model type are in families/model_types.py
Tested through every family in tests/families/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from inlayer.families.spec import SLIDING, NormKind


@dataclass(frozen=True, kw_only=True)
class Family:
    """The traits of one model type's input layer and head."""

    defaults: dict[str, Any]
    positions: Literal["none", "learned", "sinusoidal", "rotary"] = "rotary"
    positions_flag: str | None = None  # the field that switches positions on, with true or "rope"
    alibi_flag: str | None = None  # the field that selects ALiBi instead, which adds nothing to the rows
    # relative positions, which attention adds to its scores
    relative: Literal["alibi", "alibi_mpt", "alibi_bf16", "t5", "mpnet", "deberta"] | None = None
    input_only_rows: int = 0  # rows of the table after the vocabulary, which the head does not have
    padding_row: str | int | None = "pad_token_id"  # the field with the padding row, or the row itself; None: no row
    # learned positions
    position_offset: int = 0  # unused rows in front of the first position
    position_start: int = 0  # the first position id
    sinusoidal_if_missing: bool = False  # if the file has no learned positions, they are sinusoidal (Marian)
    position_ids_by: Literal["index", "ids", "mask"] = "index"
    # rotary positions
    pairing: Literal["half", "interleaved"] = "half"
    layout: Literal["half", "interleaved", "single", "complex"] | None = None
    has_partial_rotary: bool = False  # a fraction of each head may be rotated
    keep_float32: bool = False  # cos and sin stay float32 in a bfloat16 model
    reverse_rotation: bool = False  # attention rotates in the opposite direction
    rotate_in_float32: bool = False  # attention rounds once, after the rotation
    rope_fields: tuple[str, str] = ("rope_theta", "partial_rotary_factor")  # base and rotated fraction
    rope_type_aliases: Mapping[str, str] = field(default_factory=dict)  # old names of rope types
    has_mscales: bool = False  # LongRoPE: the config gives the cos/sin factors, and short_factor is always used
    head_dim_fields: tuple[str, ...] = ("qk_rope_head_dim", "head_dim")
    head_dim_addends: tuple[str, ...] = ()  # fields that add up to the width of a head, if it is not given
    rotary_dim_field: str | None = None  # the field with the number of rotated channels, if the config has no fraction
    has_global_head_dim: bool = False  # full-attention layers have wider heads: global_head_dim
    theta_fields: Mapping[str, str] = field(default_factory=dict)  # the field with the base of each layer type
    scaled_layers: tuple[str, ...] = ()  # the layer types that rope_scaling applies to
    sections: Literal["chunked", "interleaved"] | None = None  # M-RoPE: positions with three axes
    default_sections: tuple[int, ...] = (11, 11, 10)
    no_rope_interval: bool = False  # every n-th layer has no positions: no_rope_layers, no_rope_layer_interval
    layer_thetas_field: str | None = None  # the field with the base of every layer; 0 for a layer without positions
    has_one_theta: bool = False  # other values of that field are not used
    learned_frequencies: bool = False  # a learned factor for each frequency is stored with the weights
    layers_without_rotary: tuple[str, ...] = ()  # layer types without positions
    # used if the config does not list layer types: one layer in every n has full attention, the last of these n
    full_attention_interval: int | None = None
    first_layer_is_full: bool = False  # it is the first of these n instead
    default_layer_type: str = SLIDING
    last_layer_is_full: bool = False  # the last layer has full attention, regardless of what the config lists
    # around the sum
    # the scaled vectors: looked-up rows, or also inputs_embeds; "encoder_rows": also inputs_embeds without an encoder
    scale_at: Literal["rows", "inputs", "encoder_rows"] | None = None
    scale_field: str | None = None  # the field with the factor; otherwise it is the square root of the width
    scale_flag: str | None = None  # the field that switches the scale on
    round_scale: bool | Literal["bfloat16"] = False  # the factor is rounded to the vectors' dtype, or to this dtype
    norm: NormKind | None = None
    norm_at: Literal["sum", "start", "rows"] = "sum"  # start: before positions are added; rows: not on inputs_embeds
    positions_first: bool = False  # positions are added before token types
    mask_padding: bool | Literal["ids"] = False  # hidden states of padding are zero; "ids": also without a mask
    streams_field: str | None = None  # the field with the number of streams that each hidden state is repeated into
    token_types: bool = False
    projection_at: Literal["rows", "sum"] | None = None  # rows: before positions (OPT); sum: after the norm (ALBERT)
    projects_equal_widths: bool = False  # rows are projected even if they are as wide as hidden states
    dropout_field: str | None = None  # the field with the dropout rate
    ngrams: Literal["qwen4", "engram", "longcat", "blt"] | None = None  # the kind of n-gram memories
    # vectors for every block: from a second table, with factors that are rounded or not, or only from the rows
    per_layer: Literal["rounded", "exact", "projected"] | None = None
    value_embeddings: bool = False  # a second table for the values of the first and last block with full attention
    # head
    logits_scaling_multiplies: bool = False  # logits are multiplied instead of divided (HyperCLOVA X)
    head_bias: bool = False  # the head has a bias, as masked-language heads do
    decoder_table: bool = False  # the decoder has its own table, which a tied head shares (T5Gemma)
    untied_classes: tuple[str, ...] = ()  # model classes whose head is not tied, regardless of the config
    head_input_scaled: bool = False  # T5 and UMT5 when tied: hidden states times 1 / sqrt(width)
