"""LayerSpec: an input layer and its head as plain settings. No torch.

config.json -> families.describe -> [LayerSpec] -> Embeddings, Head
- settings are checked when they are created; the computations they describe are in positions/, which needs torch
- see also: RoPE scaling, for contexts longer than in training (families/rope_scaling_settings.py)
Tested in tests/families/ and tests/positions/test_rope_scaling.py.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from inlayer.errors import ConfigError
from inlayer.families.rope_scaling_settings import RopeScaling
from inlayer.tables.ngram_hash import NgramSpec

FULL, SLIDING = "full_attention", "sliding_attention"  # layer types
MAX_ALIBI_HEADS = 2**16
MAX_LAYERS = 4096  # the deepest published models have a few hundred

NormKind: TypeAlias = Literal[
    "layernorm", "layernorm_no_bias", "layernorm_fp32", "rmsnorm", "rmsnorm_no_weight", "rmsnorm_fp32",
    "rmsnorm_fp32_no_weight",
]  # fmt: skip
Pairing: TypeAlias = Literal["half", "interleaved"]
Layout: TypeAlias = Literal["half", "interleaved", "single", "complex"]
PositionScheme: TypeAlias = Literal["none", "learned", "sinusoidal", "rotary"]
NormAt: TypeAlias = Literal["sum", "start", "rows"]
ProjectionAt: TypeAlias = Literal["rows", "sum"]


@dataclass(frozen=True, kw_only=True)
class RopeParameters:
    """The parameters of RoPE: the base theta, the fraction of each head that is rotated, and the scaling.

    Args:
        theta: The base: pair i of R channels rotates by theta^(-2i / R) radians per token.
        partial_rotary_factor: Fraction of each head that is rotated.
        scaling: A rule for contexts longer than in training, such as `YarnScaling`.
        sections: M-RoPE: the number of channel pairs that follow each axis of the positions.
        sections_interleaved: Whether the pairs of the axes alternate (Qwen3.5) or are in chunks (Qwen2-VL).
        head_dim: Width of a head, if a layer type has wider heads than the others (Gemma-4).

    Raises:
        InlayerError: If theta is not positive and finite, or the fraction is not in (0, 1].

    Example:
        >>> RopeParameters(theta=500_000.0, scaling=LinearScaling(factor=4.0)).theta
        500000.0
    """

    theta: float = 10_000.0
    partial_rotary_factor: float = 1.0
    scaling: RopeScaling | None = None
    sections: tuple[int, ...] | None = None
    sections_interleaved: bool = False
    head_dim: int | None = None

    def __repr__(self) -> str:
        """Show only what differs from the defaults."""
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return f"RopeParameters({', '.join(f'{name}={getattr(self, name)!r}' for name in changed)})"

    def __post_init__(self) -> None:
        if not 0 < self.theta < math.inf:
            rule = "it must be positive and finite (10,000 is a common value)"
            raise ConfigError(f"the rotary base theta is {self.theta}; {rule}")
        if not 0 < self.partial_rotary_factor <= 1:
            raise ConfigError(f"the rotated fraction of a head is {self.partial_rotary_factor}; it must be in (0, 1]")


@dataclass(frozen=True, kw_only=True)
class PositionIdRule:
    """How position ids are numbered if the caller does not pass them.

    Args:
        by: How positions are counted: "index" counts every token (GPT-2, BERT, every rotary model), "ids" skips the id
            `padding_idx` (RoBERTa, MPNet), and "mask" skips positions where the attention mask is 0 (OPT).
        start: Position of the first real token; padding that is skipped gets `start - 1`.
        padding_idx: The id to skip with "ids".

    Raises:
        InlayerError: If `by` is "ids" and there is no `padding_idx`.

    Example:
        >>> PositionIdRule(by="ids", start=2, padding_idx=1)  # RoBERTa
        PositionIdRule(by='ids', start=2, padding_idx=1)
    """

    by: Literal["index", "ids", "mask"] = "index"
    start: int = 0
    padding_idx: int | None = None

    def __post_init__(self) -> None:
        if self.by == "ids" and self.padding_idx is None:
            raise ConfigError("position ids that skip padding by id need padding_idx, the id to skip")


@dataclass(frozen=True, kw_only=True)
class RotarySpec:
    """The arguments of `positions.RotaryPositions`."""

    head_dim: int
    rope_parameters: RopeParameters | dict[str, RopeParameters]
    pairing: Pairing
    layout: Layout | None
    keep_float32: bool
    layer_types: tuple[str | None, ...] | None = None  # type of each layer, or None if it has no rotary positions
    learned_frequencies: bool = False  # the logarithm of each frequency's factor is stored with the weights
    reverse_rotation: bool = False  # attention rotates in the opposite direction
    rotate_in_float32: bool = False  # attention rounds once, after the rotation


@dataclass(frozen=True, kw_only=True)
class AlibiSpec:
    """ALiBi: attention adds (head slope x key position) to each score.

    `bias_max` is set for MPT, which orders its slopes differently and counts positions from the last token.
    `bfloat16_slopes` is set for Falcon, which rounds its slopes to bfloat16.
    """

    heads: int
    bias_max: float | None = None
    bfloat16_slopes: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.heads <= MAX_ALIBI_HEADS:
            raise ConfigError(f"the config has {self.heads:,} heads with ALiBi; expected 1..{MAX_ALIBI_HEADS:,}")


@dataclass(frozen=True, kw_only=True)
class RelativeBucketSpec:
    """Relative positions: the distance between two tokens selects a row of a learned table; large distances share rows.

    A "t5" row has one bias per head. A "deberta" row is a vector that attention multiplies by queries and keys.
    """

    kind: Literal["t5", "deberta"]
    buckets: int | None  # None: every distance up to the longest one has its own row
    max_distance: int

    @property
    def rows(self) -> int:
        """Rows of the table; DeBERTa has an equal number for negative distances."""
        buckets = self.buckets or self.max_distance
        return buckets if self.kind == "t5" else 2 * buckets


RelativeSpec: TypeAlias = AlibiSpec | RelativeBucketSpec


@dataclass(frozen=True, kw_only=True)
class PerLayerSpec:
    """Per-layer embeddings: a second table whose rows have `width` channels for each of `n_layers` blocks.

    `round_factors` is Gemma-3n's variant: factors are rounded to the model's dtype, and ids without a row get row 0.
    EmbeddingGemma-2 has no second table (`rows` is 0): its vectors are projections of the rows.
    """

    rows: int
    n_layers: int
    width: int
    norm_eps: float
    padding_idx: int | None
    round_factors: bool


@dataclass(frozen=True, kw_only=True)
class ValueEmbeddingSpec:
    """Value embeddings: a second table whose rows some blocks add to the values of their attention (NeoMME)."""

    rows: int
    width: int
    layer_indices: tuple[int, ...]  # the blocks that read it


@dataclass(frozen=True, kw_only=True)
class HeadSpec:
    """The arguments of `Head`, and whether it is tied to the table."""

    tied: bool
    vocab_size: int | None  # None: same as the table
    n_embd: int | None  # None: the width of the table's rows
    bias: bool
    hidden_scale: float
    logit_scale: float
    logit_divisor: float
    soft_cap: float | None


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """An input layer and its head, as returned by `inlayer.describe`.

    Most attributes are arguments of `Embeddings`, which describes them.

    Attributes:
        family: The model type.
        vocab_size: Rows of the token table.
        n_embd: Width of the hidden states.
        block_size: Rows of learned positions, or a rotary model's maximum length; None if there is no limit.
        positions: "none", "learned", "sinusoidal", or "rotary".
        rotary: Arguments of `positions.RotaryPositions`, or None.
        position_id_rule: How positions are numbered.
        position_offset: Unused rows at the start of learned positions.
        padding_idx: The padding row, or None.
        init_std: Standard deviation of randomly initialized rows.
        scale: Multiplier for the rows.
        round_scale: Whether the scale is rounded to the table's dtype before it is applied.
        input_multiplier: Multiplier for both rows and inputs_embeds.
        round_input_multiplier: Whether the multiplier is rounded to the dtype of the vectors.
        n_token_types: Number of token types; 0 if there are none.
        norm: Kind of norm.
        norm_eps: Epsilon of the norm, or None if there is no norm.
        norm_at: Where the norm is applied.
        positions_first: Whether positions are added before token types.
        mask_padding: Whether the result is multiplied by the attention mask.
        n_streams: Number of times the model repeats each hidden state.
        dropout: Dropout rate.
        row_width: Width of the token rows if they are narrower than n_embd, otherwise None.
        projection_at: Whether such rows are projected to n_embd before positions ("rows") or after ("sum"); or None.
        per_layer: Sizes of per-layer embeddings, or None.
        value_embeddings: Sizes of value embeddings, or None.
        head: Arguments of `Head`, and whether it is tied.
        ngrams: The n-gram memories.
        sinusoidal_if_missing: Whether the layer uses sinusoidal positions if the file has no learned ones.
        relative: Relative positions, which add nothing to the rows, or None.

    Example:
        >>> spec = inlayer.load("default").spec
        >>> spec.family, spec.n_embd, spec.positions, spec.head.tied, spec.is_generic
        ('llama', 128, 'rotary', True, False)
    """

    family: str
    vocab_size: int
    n_embd: int
    block_size: int | None
    positions: PositionScheme
    rotary: RotarySpec | None
    position_id_rule: PositionIdRule
    position_offset: int
    padding_idx: int | None
    init_std: float
    scale: float
    round_scale: bool
    input_multiplier: float
    round_input_multiplier: bool
    n_token_types: int
    norm: NormKind
    norm_eps: float | None
    norm_at: NormAt
    positions_first: bool
    mask_padding: bool | Literal["ids"]
    n_streams: int
    dropout: float
    row_width: int | None
    projection_at: ProjectionAt | None
    per_layer: PerLayerSpec | None
    value_embeddings: ValueEmbeddingSpec | None
    head: HeadSpec
    ngrams: tuple[NgramSpec, ...] = ()
    sinusoidal_if_missing: bool = False
    relative: RelativeSpec | None = None

    @property
    def is_generic(self) -> bool:
        """True if the model type is unknown and the layer is inferred from its config and tensors."""
        return self.family.startswith("generic (")
