"""The input layer: rows + positions -> hidden states. What a model computes between its tokenizer and its first block.

text -> ids -> rows -> (+ positions) -> [hidden states] -> decoder -> head
- the order of operations is that of the original models, because results are promised to be bit-equal:
  rows (x scale), (projection), + token types, + positions, (norm), (dropout), (projection)
- rotary positions add nothing here; `rotary()` prepares cos and sin for attention
- vectors can be passed instead of ids (`inputs_embeds`): they enter after the lookup and its scale
- elsewhere: other projects' names for these settings (families/), reading weights from files (checkpoint/)
Tested against transformers for every family in tests/families/test_parity.py, and in tests/test_embeddings.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.errors import ConfigError, DtypeError, InputError, ShapeError
from inlayer.families import LayerSpec, describe
from inlayer.head import Head
from inlayer.positions import (
    LearnedPositions,
    PositionIdRule,
    Positions,
    RotaryPositions,
    SinusoidalPositions,
    build_positions,
    make_position_ids,
)
from inlayer.shapes import check_seed, is_finite
from inlayer.tables import StoredEmbedding, Table, add_up, check_id_range
from inlayer.tensors import check_float, check_ids, check_mask, check_one_per_token

__all__ = ["Embeddings", "LayerStage"]

PROJECTIONS = ("rows", "sum")
# Fields of a LayerSpec with the name of an argument of Embeddings.
SPEC_SETTINGS = (
    "padding_idx", "init_std", "scale", "multiplier", "dropout", "norm_eps", "token_types", "row_width", "project",
    "position_id_rule", "position_offset",
)  # fmt: skip
StageName = Literal["row", "scale", "multiplier", "projection", "token type", "position", "norm"]


class LayerStage(NamedTuple):
    """The vectors after one stage of the layer, and what the stage added to them, if it is a sum."""

    name: StageName
    added: Tensor | None
    after: Tensor


class Embeddings(nn.Module):
    """The input layer of a language model: token ids -> hidden states.

    Args:
        vocab_size: Rows of the token table.
        n_embd: Width of the hidden states.
        block_size: Number of learned positions, or of precomputed sinusoidal ones; not for the other schemes.
        positions: "none", "learned", "sinusoidal", "rotary", or a module from inlayer.positions; by default "learned"
            if block_size is given, otherwise "none".
        padding_idx: A row that is initialized to zero, stays zero, and gets no gradient.
        init: "normal" (N(0, init_std)), "embedding" (N(0, 1)) or "scaled" (N(0, 1 / sqrt(width))).
        init_std: Standard deviation for "normal" and for learned positions.
        seed: Makes the initialization reproducible.
        scale: Factor on the rows, rounded to the table's dtype (Gemma: sqrt(n_embd)).
        multiplier: Factor on rows and inputs_embeds alike, not rounded (Granite).
        dropout: Dropout rate of the sum.
        norm_eps: Adds a LayerNorm after the sum (BERT, BLOOM).
        token_types: Rows of a token type table (BERT), 0 for none.
        row_width: Width of the token rows if they are narrower than n_embd.
        project: Where such rows are projected to n_embd: "rows" before positions (OPT), "sum" after the norm (ALBERT).
        position_id_rule: Position ids if the caller does not pass them (RoBERTa and OPT skip padding).
        position_offset: Unused rows at the start of learned positions.
        head_dim: For positions="rotary": width of an attention head, n_embd by default.
        theta: Base of rotary and sinusoidal positions.
        device: As in torch.nn.Embedding.
        dtype: As in torch.nn.Embedding.

    Raises:
        ConfigError: If settings are invalid or contradict each other.

    Example:
        >>> layer = Embeddings(vocab_size=256, block_size=8, n_embd=4)
        >>> layer(torch.tensor([[72, 105]])).shape
        torch.Size([1, 2, 4])
    """

    def __init__(
        self,
        vocab_size: int,
        n_embd: int,
        block_size: int | None = None,
        *,
        positions: str | Positions | None = None,
        padding_idx: int | None = None,
        init: str = "normal",
        init_std: float = 0.02,
        seed: int | None = None,
        scale: float = 1.0,
        multiplier: float = 1.0,
        dropout: float = 0.0,
        norm_eps: float | None = None,
        token_types: int = 0,
        row_width: int | None = None,
        project: str | None = None,
        position_id_rule: PositionIdRule | None = None,
        position_offset: int = 0,
        head_dim: int | None = None,
        theta: float = 10_000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if position_id_rule is not None and not isinstance(position_id_rule, PositionIdRule):
            raise ConfigError(
                f"position_id_rule is {position_id_rule!r}; give a PositionIdRule, such as PositionIdRule(by='mask')"
            )
        if project not in (None, *PROJECTIONS) or (row_width is None) != (project is None):
            raise ConfigError(
                f"row_width is {row_width} and project is {project!r}; give both or neither: project is one of "
                f"{', '.join(PROJECTIONS)}"
            )
        for name, value, is_valid, rule in (
            ("scale", scale, is_finite(scale), "a finite number"),
            ("multiplier", multiplier, is_finite(multiplier), "a finite number"),
            ("dropout", dropout, is_finite(dropout) and 0 <= dropout <= 1, "a rate in 0..1"),
            ("norm_eps", norm_eps, norm_eps is None or (is_finite(norm_eps) and norm_eps > 0), "a positive number"),
            ("token_types", token_types, isinstance(token_types, int) and token_types >= 0, "a number of rows, or 0"),
        ):
            if not is_valid:
                raise ConfigError(f"{name} is {value!r}; it must be {rule}")
        if dtype is not None and not isinstance(dtype, torch.dtype):
            raise DtypeError(f"dtype is {dtype!r}; it must be a torch dtype, such as torch.float32")
        row_width = row_width or n_embd
        sum_width = n_embd if project == "rows" else row_width
        token_seed, position_seed, type_seed = _seeds(seed)
        target: Any = {"device": device, "dtype": dtype}
        self.n_embd, self.block_size = n_embd, block_size
        self.scale, self.multiplier, self.project = scale, multiplier, project
        self.position_id_rule = position_id_rule or PositionIdRule()
        # A plain list, so that heads are not registered as children: they belong to the model, not to its input layer.
        self._tied_heads: list[Head] = []

        self.token_embedding: nn.Embedding | StoredEmbedding = Table(
            vocab_size, row_width, padding_idx=padding_idx, init=init, init_std=init_std, seed=token_seed, **target
        )
        learned = {
            "offset": position_offset, "padding_idx": self.position_id_rule.padding_idx, "init_std": init_std,
            "seed": position_seed,
        }  # fmt: skip
        self.position_embedding = build_positions(
            positions, sum_width, block_size, theta=theta, head_dim=head_dim, learned=learned | target
        )
        self.token_type_embedding = (
            Table(token_types, sum_width, init_std=init_std, seed=type_seed, **target) if token_types else None
        )
        self.norm = None if norm_eps is None else nn.LayerNorm(sum_width, eps=norm_eps, **target)
        self.dropout = nn.Dropout(dropout)
        self.projection = None if project is None else nn.Linear(row_width, n_embd, bias=project == "sum", **target)

    @classmethod
    def from_config(
        cls,
        config: object,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Embeddings:
        """Build the input layer of a model config: a transformers config, a dict, or a path to config.json."""
        return cls.from_spec(describe(config), seed=seed, device=device, dtype=dtype)

    @classmethod
    def from_spec(cls, spec: LayerSpec, **options: Any) -> Embeddings:
        """Build the input layer that `inlayer.describe` returned; options are seed, device and dtype."""
        positions = RotaryPositions(**vars(spec.rotary)) if spec.rotary else spec.positions
        block_size = None if positions == "none" else spec.block_size
        settings = {name: getattr(spec, name) for name in SPEC_SETTINGS}
        return cls(spec.vocab_size, spec.n_embd, block_size, positions=positions, **settings, **options)

    def head_from_config(
        self, config: object, *, tied: bool | None = None, device: torch.device | str | None = None
    ) -> Head:
        """Build the head of the same config, tied to this layer's table if the config or `tied` says so."""
        return self.head_from_spec(describe(config), tied=tied, device=device)

    def head_from_spec(
        self, spec: LayerSpec, *, tied: bool | None = None, device: torch.device | str | None = None
    ) -> Head:
        """As head_from_config. Rows and bias are created on the table's device, or on `device` ("meta" for none)."""
        table = self.token_embedding
        tied = spec.head.tied if tied is None else tied
        if device is None:
            device = table.device if isinstance(table, StoredEmbedding) else table.weight.device
        settings = {name: value for name, value in vars(spec.head).items() if name != "tied"}
        # A tied head discards its own rows, so they are never filled.
        head = Head(
            table.embedding_dim, self.vocab_size, padding_idx=spec.padding_idx, init_std=spec.init_std,
            device="meta" if tied else device, dtype=self.dtype, **settings,
        )  # fmt: skip
        if tied:
            self.tie(head)
            if head.bias is not None:  # the bias is not shared
                head.bias = nn.Parameter(torch.zeros_like(head.bias, device=device))
        return head

    # ---- forward

    def forward(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        record: list[LayerStage] | None = None,
    ) -> Float[Tensor, "... T D"]:
        """Compute hidden states (B, T, D); one text (T,) gives (T, D).

        Args:
            input_ids: Token ids (B, T). Give exactly one of input_ids and inputs_embeds.
            inputs_embeds: Vectors (B, T, D) in place of the rows.
            position_ids: (B, T) or (T,). By default, positions count from the left, padding included, unless
                position_id_rule skips it; a batch that is padded on the left needs position_ids.
            token_type_ids: (B, T), for a layer with token types; 0 by default.
            attention_mask: (B, T), 1 for real tokens; only used if position_id_rule reads it. A warning says so if a
                batch is padded on the left: pass position_ids=inlayer.position_ids_from_mask(attention_mask).
            record: A list that receives every stage, for tracing.

        Raises:
            IdRangeError: If an id is not a row of the table.
            PositionRangeError: If a position is outside the learned positions.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError(
                "neither input_ids nor inputs_embeds was given; give exactly one of them"
                if input_ids is None
                else "both input_ids and inputs_embeds were given; give exactly one: ids to look up, or their vectors"
            )
        single, input_ids, inputs_embeds = self._with_batch_axis(input_ids, inputs_embeds)

        def after(name: StageName, hidden: Tensor, added: Tensor | None = None) -> Tensor:
            if record is not None:
                record.append(LayerStage(name, added, hidden[0] if single else hidden))
            return hidden

        if input_ids is not None and not isinstance(self.token_embedding, (Table, StoredEmbedding)):
            check_id_range(input_ids, self.vocab_size)  # other modules do not check ids
        hidden = after("row", self.token_embedding(input_ids) if inputs_embeds is None else inputs_embeds)
        if self.scale != 1.0 and inputs_embeds is None:
            hidden = after("scale", hidden * torch.full((), self.scale, dtype=hidden.dtype, device=hidden.device))
        if self.multiplier != 1.0:
            hidden = after("multiplier", hidden * self.multiplier)
        if self.projection is not None and self.project == "rows":
            hidden = after("projection", self.projection(hidden))
        for name, added in self._added(hidden, input_ids, position_ids, token_type_ids, attention_mask):
            hidden = after(name, add_up(hidden, added), added)
        if self.norm is not None:
            hidden = after("norm", self.norm(hidden))
        hidden = self.dropout(hidden)
        if self.projection is not None and self.project == "sum":
            hidden = after("projection", self.projection(hidden))
        return hidden[0] if single else hidden

    def stages(self, *inputs: Tensor | None, **named: Tensor | None) -> list[LayerStage]:
        """The stages of `forward` with the same arguments, from the rows to the hidden states."""
        stages: list[LayerStage] = []
        self.forward(*inputs, **named, record=stages)
        return stages

    def _with_batch_axis(self, ids: Tensor | None, embeds: Tensor | None) -> tuple[bool, Tensor | None, Tensor | None]:
        if ids is not None:
            ids = check_ids(ids)
            if ids.dim() not in (1, 2):
                raise ShapeError(f"input_ids has shape {tuple(ids.shape)}; expected (batch, tokens), or (tokens,)")
            return ids.dim() == 1, ids[None] if ids.dim() == 1 else ids, None
        embeds = check_float(embeds, "inputs_embeds", width=self.token_embedding.embedding_dim)
        if embeds.dim() not in (2, 3):
            raise ShapeError(
                f"inputs_embeds has shape {tuple(embeds.shape)}; expected (batch, tokens, width), or (tokens, width)"
            )
        return embeds.dim() == 2, None, embeds[None] if embeds.dim() == 2 else embeds

    def _added(
        self,
        hidden: Tensor,
        ids: Tensor | None,
        position_ids: Tensor | None,
        token_type_ids: Tensor | None,
        attention_mask: Tensor | None,
    ) -> Iterator[tuple[StageName, Tensor]]:
        """What is added to the rows, in the order of the original models: token types, then absolute positions."""
        batch, tokens = hidden.shape[:2]
        if attention_mask is not None:
            attention_mask = check_mask(attention_mask, batch, tokens)
        if self.token_type_embedding is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros(1, 1, dtype=torch.int64, device=hidden.device)
            else:
                token_type_ids = check_one_per_token(token_type_ids, batch, tokens, "token_type_ids")
            yield "token type", self.token_type_embedding(token_type_ids)
        elif token_type_ids is not None:
            raise InputError("token_type_ids were given, but this layer has no token types")
        if isinstance(self.position_embedding, (LearnedPositions, SinusoidalPositions)):
            if position_ids is None:
                position_ids = make_position_ids(
                    self.position_id_rule, (batch, tokens), hidden.device, ids, attention_mask
                )
            else:
                position_ids = check_one_per_token(position_ids, batch, tokens, "position_ids")
            yield "position", self.position_embedding(position_ids).to(hidden.dtype)

    def rotary(
        self, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Float[Tensor, "... T R"], Float[Tensor, "... T R"]]:
        """Compute cos and sin for attention (`inlayer.apply_rotary`).

        Args:
            position_ids: Positions (B, T) or (T,).
            layer_type: For models whose layers differ (Gemma-3), such as "sliding_attention".

        Returns:
            cos and sin, each (B, T, R) for R rotated channels, in the table's dtype.

        Raises:
            InputError: If the positions are not rotary, or `layer_type` is missing or unknown.
        """
        if not isinstance(self.position_embedding, RotaryPositions):
            raise InputError("this layer's positions are not rotary, so it has no cos and sin")
        cos_sin: tuple[Tensor, Tensor] = self.position_embedding(position_ids, self.dtype, layer_type)
        return cos_sin

    # ---- the table and its ties

    @property
    def vocab_size(self) -> int:
        """Number of rows of the token table."""
        return self.token_embedding.num_embeddings

    @property
    def padding_idx(self) -> int | None:
        """The padding row, or None."""
        return self.token_embedding.padding_idx

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the rows."""
        table = self.token_embedding
        return table.dtype if isinstance(table, StoredEmbedding) else table.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding | StoredEmbedding:
        """The token table, under the name that transformers uses."""
        return self.token_embedding

    def set_input_embeddings(self, table: nn.Embedding | StoredEmbedding) -> None:
        """Replace the token table; heads tied to this layer follow."""
        width = self.token_embedding.embedding_dim
        if not isinstance(table, StoredEmbedding):  # whose weight would read the whole table
            check_float(getattr(table, "weight", None), "the new table's weight", width=width, rank=2)
        elif table.embedding_dim != width:
            raise ShapeError(f"the new rows have width {table.embedding_dim}; this layer's rows have width {width}")
        self.token_embedding = table
        self._resize_biases(table.num_embeddings)

    def resize(
        self,
        new_vocab_size: int,
        pad_to_multiple_of: int | None = None,
        init: str = "mean",
        *,
        allow_shrink: bool = False,
    ) -> int:
        """Resize the token table and the heads tied to it; existing rows keep every bit.

        The weight becomes a new parameter: create the optimizer after this call.

        Args:
            new_vocab_size: Number of rows.
            pad_to_multiple_of: Round the number of rows up to a multiple.
            init: New rows: "mean" of the existing ones, "zeros", or a rule of the constructor's `init`.
            allow_shrink: Allow fewer rows, which drops the last ones.

        Returns:
            The new number of rows.

        Raises:
            InputError: If rows would be dropped, or the rows are in a file (use `load(source, trainable=True)`).

        Example:
            >>> Embeddings(vocab_size=100, n_embd=4).resize(101, pad_to_multiple_of=64)
            128
        """
        if not isinstance(self.token_embedding, Table):
            raise InputError(
                f"a {type(self.token_embedding).__name__} cannot be resized, only an inlayer.Table; load(source, "
                "trainable=True) reads a checkpoint's rows into one"
            )
        rows = self.token_embedding.resize(
            new_vocab_size, pad_to_multiple_of=pad_to_multiple_of, init=init, allow_shrink=allow_shrink
        )
        self._resize_biases(rows)
        return rows

    def _resize_biases(self, rows: int) -> None:
        for head in self._tied_heads:
            if head.tied and head.table is self.token_embedding:  # it may have been tied to another layer since
                head.resize_bias(rows)

    def tie(self, head: object) -> None:
        """Tie a head to this layer's table: one table, trained from both ends."""
        if not isinstance(head, Head):
            raise InputError(f"a {type(head).__name__} cannot be tied to this layer; use inlayer.Head")
        head.tie(self)
        if all(head is not known for known in self._tied_heads):
            self._tied_heads.append(head)

    def extra_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, n_embd={self.n_embd}, scale={self.scale}"


def _seeds(seed: int | None) -> tuple[int | None, int | None, int | None]:
    """Three independent seeds from one: with the same seed for all, position 0 would equal token 0."""
    if seed is None:
        return None, None, None
    check_seed(seed)
    first, second, third = torch.randint(2**62, (3,), generator=torch.Generator().manual_seed(seed)).tolist()
    return first, second, third
