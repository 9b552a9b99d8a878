"""The input layer: rows + positions -> hidden states. Everything between the tokenizer and the first block.

text -> ids -> rows -> (+ positions) -> [hidden states] -> decoder -> head
- operations run in the order of the original models, so that results are bit-identical:
  rows (x scale) (+ n-grams) (x input multiplier) (projection) (norm), + token types, + positions, (norm) (mask)
  (dropout) (projection); some models add positions before token types
- rotary positions add nothing here; `rotary()` prepares cos and sin for attention
- vectors can be passed instead of ids (`inputs_embeds`); they skip the lookup and its scale
- see also: lookup, reverse lookup, and tying of the token table (input_table.py); n-gram, per-layer, and value
  embeddings (extra_tables.py); other projects' names for these settings (families/); reading weights (checkpoint/)
Tested against transformers for every family in tests/families/test_parity.py, and in tests/test_embeddings.py.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.checks import check_type, is_finite, is_integer
from inlayer.errors import ConfigError, InputError
from inlayer.extra_tables import ExtraTables
from inlayer.families import describe
from inlayer.families.spec import NormAt, NormKind, PerLayerSpec, ProjectionAt, RelativeSpec, ValueEmbeddingSpec
from inlayer.initialization import InitRule, derive_seeds
from inlayer.layer_stage import LayerStage, StageName, record_stage
from inlayer.norms import build_norm
from inlayer.per_layer import PerLayerEmbedding
from inlayer.positions import (
    LearnedPositions,
    PositionIdRule,
    Positions,
    PositionScheme,
    RotaryPositions,
    SinusoidalPositions,
    build_positions,
    make_position_ids,
    positions_from_spec,
)
from inlayer.tables import Table, add_into_buffer, check_id_range
from inlayer.tensors import apply_projection, check_mask, check_one_per_token, mask_from_ids, multiply, with_batch_axis

CosSin: TypeAlias = tuple[Float[Tensor, "... T R"], Float[Tensor, "... T R"]]
# Fields of a LayerSpec that have the same name as an argument of Embeddings.
SPEC_SETTINGS = (
    "padding_idx", "init_std", "scale", "round_scale", "input_multiplier", "round_input_multiplier", "mask_padding",
    "dropout", "norm", "norm_eps", "norm_at", "positions_first", "n_token_types", "row_width", "projection_at",
    "position_id_rule", "position_offset", "per_layer", "value_embeddings",
)  # fmt: skip


class Embeddings(ExtraTables):
    """The input layer of a language model: token ids -> hidden states.

    Args:
        vocab_size: Rows of the token table.
        n_embd: Width of the hidden states.
        block_size: Number of learned or precomputed sinusoidal positions; not used by other schemes.
        positions: "none", "learned", "sinusoidal", "rotary", or a module from inlayer.positions; by default "learned"
            if block_size is given, otherwise "none".
        padding_idx: A row that is initialized to zero, stays zero, and gets no gradient.
        init: "normal" (N(0, init_std)), "embedding" (N(0, 1)) or "scaled" (N(0, 1 / sqrt(width))). If no norm follows,
            training with the default is slow: use "embedding", or with a tied head "scaled" and scale=sqrt(n_embd).
        init_std: Standard deviation for "normal" and for learned positions.
        seed: Makes the initialization reproducible.
        scale: Multiplier for the rows (Gemma: sqrt(n_embd)).
        round_scale: Round the scale to the table's dtype (Gemma does, BART does not).
        input_multiplier: Multiplier for both rows and inputs_embeds (Granite).
        round_input_multiplier: Round the multiplier to the dtype of the vectors (T5Gemma does, Granite does not).
        dropout: Dropout rate of the sum.
        norm_eps: Epsilon of the norm (BERT, BLOOM); by default there is no norm. `norm_at` sets where it is applied.
        norm: Kind of norm: "layernorm", "layernorm_no_bias" (ModernBERT), "layernorm_fp32" (DeBERTa), "rmsnorm",
            "rmsnorm_no_weight" (NanoChat), "rmsnorm_fp32", or "rmsnorm_fp32_no_weight" (Muse Spark).
        norm_at: Where the norm is applied: after the "sum", at the "start" before positions are added
            (BlenderbotSmall), or on "rows" but not on inputs_embeds (Inkling).
        positions_first: Add positions before token types (DeBERTa, Longformer).
        mask_padding: Multiply the result by the attention mask (DeBERTa). With "ids", a missing mask is made from
            padding_idx (XLM).
        n_token_types: Number of token types (BERT); 0 for none.
        row_width: Width of the token rows if they are narrower than n_embd.
        projection_at: Where such rows are projected to n_embd: "rows" before positions (OPT), "sum" after the norm
            (ALBERT).
        position_id_rule: How to number positions if no position ids are passed (RoBERTa and OPT skip padding).
        position_offset: Unused rows at the start of learned positions.
        per_layer: Sizes of per-layer embeddings (Gemma-3n, Gemma-4); see `per_layer()`.
        value_embeddings: Sizes of value embeddings (NeoMME); see `value_embeddings()`.
        head_dim: For positions="rotary": channels per attention head, n_embd (a single head) by default.
        theta: Base of rotary and sinusoidal positions.
        device: As in torch.nn.Embedding.
        dtype: As in torch.nn.Embedding.

    Raises:
        InputError: If settings are invalid or contradict each other.

    Example:
        >>> layer = Embeddings(vocab_size=256, block_size=8, n_embd=4)
        >>> layer(torch.tensor([[72, 105]])).shape
        torch.Size([1, 2, 4])
    """

    relative: RelativeSpec | None = None  # the model's relative positions (positions/relative.py)
    n_streams: int = 1  # how often the model repeats each hidden state (DeepSeek-V4, Qwen4)

    def __init__(
        self,
        vocab_size: int,
        n_embd: int,
        block_size: int | None = None,
        *,
        positions: PositionScheme | Positions | None = None,
        padding_idx: int | None = None,
        init: InitRule = "normal",
        init_std: float = 0.02,
        seed: int | None = None,
        scale: float = 1.0,
        round_scale: bool = True,
        input_multiplier: float = 1.0,
        round_input_multiplier: bool = False,
        dropout: float = 0.0,
        norm_eps: float | None = None,
        norm: NormKind = "layernorm",
        norm_at: NormAt = "sum",
        positions_first: bool = False,
        mask_padding: bool | Literal["ids"] = False,
        n_token_types: int = 0,
        row_width: int | None = None,
        projection_at: ProjectionAt | None = None,
        position_id_rule: PositionIdRule | None = None,
        position_offset: int = 0,
        per_layer: PerLayerSpec | None = None,
        value_embeddings: ValueEmbeddingSpec | None = None,
        head_dim: int | None = None,
        theta: float = 10_000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if projection_at not in (None, *get_args(ProjectionAt)) or (row_width is None) != (projection_at is None):
            raise InputError(
                f"row_width is {row_width} and projection_at is {projection_at!r}; pass both or neither: "
                f"projection_at is one of {', '.join(get_args(ProjectionAt))}"
            )
        is_rule = position_id_rule is None or isinstance(position_id_rule, PositionIdRule)
        is_count = is_integer(n_token_types) and n_token_types >= 0
        for name, actual, is_valid, rule in (
            ("scale", scale, is_finite(scale), "a finite number"),
            ("input_multiplier", input_multiplier, is_finite(input_multiplier), "a finite number"),
            ("dropout", dropout, is_finite(dropout) and 0 <= dropout <= 1, "a rate in 0..1"),
            ("norm_eps", norm_eps, norm_eps is None or (is_finite(norm_eps) and norm_eps > 0), "a positive number"),
            ("norm", norm, norm in get_args(NormKind), f"one of {', '.join(get_args(NormKind))}"),
            ("norm_at", norm_at, norm_at in get_args(NormAt), f"one of {', '.join(get_args(NormAt))}"),
            ("n_token_types", n_token_types, is_count, "a number of rows, or 0"),
            ("position_id_rule", position_id_rule, is_rule, "a PositionIdRule, such as PositionIdRule(by='mask')"),
        ):
            if not is_valid:
                raise InputError(f"{name} is {actual!r}; it must be {rule}")
        if norm_eps is None and (norm, norm_at) != ("layernorm", "sum"):
            raise InputError(f"norm is {norm!r} at {norm_at!r}, but norm_eps is None; pass it as well, such as 1e-6")
        row_width = row_width or n_embd
        sum_width = n_embd if projection_at == "rows" else row_width
        token_seed, position_seed, type_seed = derive_seeds(seed, 3)
        factory_kwargs: Any = {"device": device, "dtype": dtype}
        table_kwargs = factory_kwargs | {"init_std": init_std}
        table = Table(vocab_size, row_width, padding_idx=padding_idx, init=init, seed=token_seed, **table_kwargs)
        super().__init__(table, scale, round_scale)
        self.n_embd, self.block_size = n_embd, block_size
        self.input_multiplier, self.round_input_multiplier = input_multiplier, round_input_multiplier
        self.projection_at, self.mask_padding, self.positions_first = projection_at, mask_padding, positions_first
        self.position_id_rule = position_id_rule or PositionIdRule()
        learned_kwargs = table_kwargs | {"offset": position_offset, "seed": position_seed}
        learned_kwargs["padding_idx"] = self.position_id_rule.padding_idx
        self.position_embedding = build_positions(
            positions, sum_width, block_size, theta=theta, head_dim=head_dim, learned_kwargs=learned_kwargs
        )
        self.token_type_embedding = (
            Table(n_token_types, sum_width, seed=type_seed, **table_kwargs) if n_token_types else None
        )
        self.norm_at = norm_at
        if norm_eps is not None:
            self.norm = build_norm(norm, sum_width, norm_eps, **factory_kwargs)
        self.dropout = nn.Dropout(dropout)
        if per_layer is not None:
            self.per_layer_embedding = PerLayerEmbedding(per_layer, n_embd, **factory_kwargs)
        if value_embeddings is not None:
            check_type(value_embeddings, ValueEmbeddingSpec, "value_embeddings")
            self.value_embedding = Table(value_embeddings.rows, value_embeddings.width, **table_kwargs)
            self.value_layers = value_embeddings.layer_indices
        has_bias = projection_at == "sum"
        self.projection = nn.Linear(row_width, n_embd, bias=has_bias, **factory_kwargs) if projection_at else None

    @classmethod
    def from_config(
        cls,
        config: object,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Embeddings:
        """Build the input layer of a model config.

        Args:
            config: Anything `inlayer.describe` accepts or returns: a dict, a config.json, a transformers config.
            seed: Makes the initialization reproducible.
            device: As in torch.nn.Embedding.
            dtype: As in torch.nn.Embedding.

        Returns:
            The layer, randomly initialized; `inlayer.load` reads trained weights.

        Raises:
            ConfigError: If the config is invalid, or its model type is not supported.

        Example:
            >>> layer = Embeddings.from_config({"model_type": "llama", "vocab_size": 100, "hidden_size": 64})
            >>> layer.vocab_size, layer.position_embedding.head_dim
            (100, 2)
        """
        spec = describe(config)
        derive_seeds(seed, 1)  # checked here, so an invalid seed is not reported as a config error
        settings: Any = {name: getattr(spec, name) for name in SPEC_SETTINGS}
        block_size = None if spec.positions == "none" else spec.block_size
        try:
            settings |= {"positions": positions_from_spec(spec, device), "seed": seed, "device": device, "dtype": dtype}
            layer = cls(spec.vocab_size, spec.n_embd, block_size, **settings)
        except InputError as error:
            raise ConfigError(str(error)) from error
        layer.ngrams, layer.relative, layer.n_streams = spec.ngrams, spec.relative, spec.n_streams
        return layer

    # ---- forward

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        history: Tensor | None = None,
        record: list[LayerStage] | None = None,
    ) -> Float[Tensor, "... T D"]:
        """Compute hidden states (B, T, D); for one text (T,), (T, D).

        Args:
            input_ids: Token ids (B, T). Pass exactly one of input_ids and inputs_embeds.
            inputs_embeds: Vectors (B, T, D) in place of the rows.
            position_ids: (B, T) or (T,), for learned and sinusoidal positions; ignored otherwise. For rotary positions,
                pass them to `rotary`. By default, positions count from the left, padding included, unless
                position_id_rule skips it; a left-padded batch needs position_ids.
            token_type_ids: (B, T), for a layer with token types; 0 by default.
            attention_mask: (B, T), 1 for real tokens, or (B, S + T) if n-grams read a history. Used by n-grams,
                mask_padding, and some position_id_rules. A warning is issued if a batch is padded on the left: pass
                position_ids=inlayer.position_ids_from_mask(attention_mask).
            history: The ids (B, S) before input_ids, for a layer that adds n-grams (LongCat-Flash, BLT).
            record: A list that receives every stage, for tracing.

        Returns:
            Hidden states (B, T, D) in the table's dtype.

        Raises:
            IdRangeError: If an id is not a row of the table.
            InputError: If not exactly one of input_ids and inputs_embeds is given.
            PositionRangeError: If a position is outside the learned positions.
            ShapeError: If an argument has the wrong shape.

        Example:
            >>> layer = Embeddings(256, 4, padding_idx=0)
            >>> layer(torch.tensor([72, 0]))[1]
            tensor([0., 0., 0., 0.], grad_fn=<SelectBackward0>)
        """
        if (input_ids is None) == (inputs_embeds is None):
            neither, both = "neither input_ids nor inputs_embeds was", "both input_ids and inputs_embeds were"
            problem = neither if input_ids is None else both
            raise InputError(f"{problem} given; pass exactly one: ids to look up, or their vectors")
        row_width = self.token_embedding.embedding_dim
        single, input_ids, inputs_embeds = with_batch_axis(input_ids, inputs_embeds, row_width)
        after = partial(record_stage, record, single)
        hidden = after("row", self._rows(input_ids) if inputs_embeds is None else inputs_embeds)
        if self.scale != 1.0 and inputs_embeds is None:
            hidden = after("scale", multiply(hidden, self.scale, self.round_scale))
        if input_ids is not None and self.adds_ngrams:
            hidden = after("n-grams", self.add_ngrams(hidden, input_ids, history, attention_mask))
            if attention_mask is not None and history is not None:
                attention_mask = attention_mask[..., history.shape[1] :]  # the mask of input_ids alone
        if self.input_multiplier != 1.0:
            hidden = after("multiplier", multiply(hidden, self.input_multiplier, self.round_input_multiplier))
        if self.projection is not None and self.projection_at == "rows":
            hidden = after("projection", apply_projection(self.projection, hidden))
        if self.norm is not None and (self.norm_at == "start" or (self.norm_at == "rows" and inputs_embeds is None)):
            hidden = after("norm", self.norm(hidden))
        for name, added in self._added(hidden, input_ids, position_ids, token_type_ids, attention_mask):
            hidden = after(name, add_into_buffer(hidden, added), added)
        if self.norm is not None and self.norm_at == "sum":
            hidden = after("norm", self.norm(hidden))
        if self.mask_padding == "ids" and attention_mask is None and input_ids is not None:
            attention_mask = mask_from_ids(input_ids, self.padding_idx)
        if self.mask_padding and attention_mask is not None:
            hidden = after("mask", hidden * check_mask(attention_mask, *hidden.shape[:2])[..., None].to(hidden.dtype))
        hidden = self.dropout(hidden)
        if self.projection is not None and self.projection_at == "sum":
            hidden = after("projection", apply_projection(self.projection, hidden))
        return hidden[0] if single else hidden

    if TYPE_CHECKING:
        __call__ = forward

    def stages(self, *inputs: Tensor | None, **named: Tensor | None) -> list[LayerStage]:
        """Compute hidden states and keep every intermediate result.

        Args:
            inputs: The positional arguments of `forward`.
            named: The keyword arguments of `forward`.

        Returns:
            One LayerStage per operation, starting with the lookup: its `name`, what it `added`, and its `output`.

        Raises:
            InlayerError: Same as `forward`.

        Example:
            >>> [stage.name for stage in Embeddings(256, 4, block_size=8, scale=2.0).stages(torch.tensor([72]))]
            ['row', 'scale', 'position']
        """
        stages: list[LayerStage] = []
        self.forward(*inputs, **named, record=stages)
        return stages

    def _added(
        self, hidden: Tensor, ids: Tensor | None, position_ids: Tensor | None, token_type_ids: Tensor | None,
        attention_mask: Tensor | None,
    ) -> list[tuple[StageName, Tensor]]:  # fmt: skip
        """Return the terms that are added to the rows, in the order of the original model."""
        batch, tokens = hidden.shape[:2]
        if attention_mask is not None:
            attention_mask = check_mask(attention_mask, batch, tokens)
        added: list[tuple[StageName, Tensor]] = []
        if self.token_type_embedding is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros(1, 1, dtype=torch.int64, device=hidden.device)
            else:
                token_type_ids = check_one_per_token(token_type_ids, batch, tokens, "token_type_ids")
                check_id_range(token_type_ids, self.token_type_embedding.num_embeddings, "token type")
            added.append(("token type", self.token_type_embedding(token_type_ids)))
        elif token_type_ids is not None:
            raise InputError("token_type_ids were given, but this layer has no token types")
        if isinstance(self.position_embedding, (LearnedPositions, SinusoidalPositions)):
            if position_ids is None:
                rule = self.position_id_rule
                position_ids = make_position_ids(rule, (batch, tokens), hidden.device, ids, attention_mask)
            else:
                position_ids = check_one_per_token(position_ids, batch, tokens, "position_ids")
            added.append(("position", self.position_embedding(position_ids).to(hidden.dtype)))
        return added[::-1] if self.positions_first else added

    @overload
    def rotary(self, position_ids: Tensor, layer_type: str | None = None) -> CosSin: ...

    @overload
    def rotary(self, position_ids: Tensor, layer_type: str | None = None, *, layer: int | None) -> CosSin | None: ...

    def rotary(self, position_ids: Tensor, layer_type: str | None = None, *, layer: int | None = None) -> CosSin | None:
        """Compute cos and sin for attention (`inlayer.apply_rotary`).

        Args:
            position_ids: Positions (B, T) or (T,); (3, B, T) for M-RoPE: time, height, and width.
            layer_type: For models whose layers differ (Gemma-3), such as "sliding_attention".
            layer: A layer index, as an alternative to `layer_type`.

        Returns:
            cos and sin, each (B, T, R) for R rotated channels, in the table's dtype. None for a `layer` without
            rotary positions (NoPE, as in every fourth layer of Llama-4 and in all layers of Kimi-K3).

        Raises:
            InputError: If the positions are not rotary, or `layer_type` or `layer` is missing or unknown.

        Example:
            >>> cos, sin = Embeddings(256, 64, positions="rotary", head_dim=16).rotary(torch.arange(3))
            >>> cos.shape, cos[0, 0].item(), sin[0, 0].item()
            (torch.Size([3, 16]), 1.0, 0.0)
        """
        positions = self.position_embedding
        if positions is None and layer is not None:
            return None
        if not isinstance(positions, RotaryPositions):
            raise InputError("this layer's positions are not rotary, so it has no cos and sin")
        if layer is not None:
            has_positions, layer_type = positions.layer_rotary_type(layer)
            if not has_positions:
                return None
        return positions(position_ids, self.dtype, layer_type)

    def extra_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, n_embd={self.n_embd}, scale={self.scale}"
