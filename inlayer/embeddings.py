"""The layer: rows + positions -> hidden states. What a model does between its tokenizer and its first block.

text -> ids -> rows -> (+ positions) -> [hidden states] -> decoder -> head
- the order of operations is that of the models themselves, because the results are promised bit for bit:
  rows (x scale), (projection), + token types, + positions, (norm), (dropout), (projection)
- rotary positions add nothing here; `rotary()` prepares cos and sin for the attention
- vectors may come in place of ids (`inputs_embeds`): they enter after the lookup and its scale
- not here: what other projects call these things (families/), reading weights from files (checkpoint/)
Checked against transformers for every family in tests/families/test_parity.py; rules in tests/test_embeddings.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from inlayer.errors import ConfigError, DtypeError, InputError, ShapeError
from inlayer.families import LayerSpec, describe
from inlayer.head import Head
from inlayer.positions import Angles, LearnedPositions, PositionIdRule, RotaryPositions, SinusoidalPositions
from inlayer.shapes import check_float, check_ids, check_seed, is_finite
from inlayer.tables import StoredTable, Table, add_up, check_id_range

__all__ = ["Embeddings", "Stage"]

PROJECTIONS = ("no", "rows", "sum")
SCHEMES = ("none", "learned", "sinusoidal", "rotary")
StageName = Literal["row", "scale", "multiplier", "projection", "token type", "position", "norm"]


class Stage(NamedTuple):
    """What the vectors are after one stage of the layer, and what the stage added to them, where it is a sum."""

    name: StageName
    added: Tensor | None
    after: Tensor


class Embeddings(nn.Module):
    """The input layer of a language model.

    >>> layer = Embeddings(vocab_size=256, block_size=8, n_embd=4)
    >>> layer(torch.tensor([[72, 105]])).shape
    torch.Size([1, 2, 4])

    positions    "none", "learned", "sinusoidal", "rotary", or a module from inlayer.positions with settings of its own;
                 unsaid: learned where block_size is given, else none
    padding_idx  a row that is zero at birth, stays zero, and learns nothing
    init         "normal" (init_std), "embedding" (N(0, 1)) or "scaled" (1 / sqrt(width)); reproducible with `seed`
    scale        rows are multiplied by it, rounded to the table's dtype (Gemma: sqrt(n_embd))
    multiplier   rows and given vectors alike are multiplied by it, unrounded (Granite)
    norm_eps     a LayerNorm after the sum (BERT, BLOOM); token_types: a small table of segment rows (BERT)
    row_width    rows narrower than n_embd, projected up: `projected` = "rows" before positions (OPT), or "sum" after
                 the norm (ALBERT)
    position_id_rule which position a token has when position_ids are not given (RoBERTa and OPT skip padding)
    head_dim, theta   for positions="rotary": the width of one attention head (n_embd unless said) and the base
    """

    def __init__(
        self,
        vocab_size: int,
        n_embd: int,
        block_size: int | None = None,
        *,
        positions: str | LearnedPositions | SinusoidalPositions | RotaryPositions | None = None,
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
        projected: str = "no",
        position_id_rule: PositionIdRule | None = None,
        position_offset: int = 0,
        head_dim: int | None = None,
        theta: float = 10_000.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        _check_settings(
            positions=positions, scale=scale, multiplier=multiplier, dropout=dropout, norm_eps=norm_eps,
            token_types=token_types, row_width=row_width, projected=projected, position_id_rule=position_id_rule,
            head_dim=head_dim,
            dtype=dtype,
        )  # fmt: skip
        row_width = row_width or n_embd
        sum_width = n_embd if projected == "rows" else row_width
        token_seed, position_seed, type_seed = _seeds(seed)
        self.n_embd, self.block_size = n_embd, block_size
        self.scale, self.multiplier = scale, multiplier
        self.position_id_rule = position_id_rule or PositionIdRule()
        # In a list they are no children: a head belongs to the model, not to its input.
        self._tied_heads: list[Head] = []
        self.projected = projected

        self.token_embedding: nn.Embedding | StoredTable = Table(
            vocab_size, row_width, padding_idx=padding_idx, init=init, init_std=init_std, seed=token_seed,
            device=device, dtype=dtype,
        )  # fmt: skip
        if positions is None:
            positions = "none" if block_size is None else "learned"
        if positions == "learned":
            if block_size is None:
                raise ConfigError('positions="learned" needs block_size, the number of positions to learn')
            positions = LearnedPositions(
                block_size, sum_width, offset=position_offset, init_std=init_std, seed=position_seed,
                padding_idx=self.position_id_rule.padding_idx, device=device, dtype=dtype,
            )  # fmt: skip
        elif positions == "sinusoidal":
            positions = SinusoidalPositions(sum_width, block_size, theta=theta, device=device)
        elif positions == "rotary":
            positions = RotaryPositions(n_embd if head_dim is None else head_dim, Angles(theta=theta))
        self.position_embedding = None if isinstance(positions, str) else positions
        if isinstance(positions, (LearnedPositions, SinusoidalPositions)) and _width(positions) != sum_width:
            raise ConfigError(f"positions of width {_width(positions)} cannot be added to rows of width {sum_width}")
        self.token_type_embedding = (
            Table(token_types, sum_width, init_std=init_std, seed=type_seed, device=device, dtype=dtype)
            if token_types
            else None
        )
        self.norm = None if norm_eps is None else nn.LayerNorm(sum_width, eps=norm_eps, device=device, dtype=dtype)
        self.dropout = nn.Dropout(dropout)
        self.projection = (
            None
            if projected == "no"
            else nn.Linear(row_width, n_embd, bias=projected == "sum", device=device, dtype=dtype)
        )

    @classmethod
    def from_config(
        cls,
        config: object,
        *,
        seed: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> Embeddings:
        """The input layer of a model's config: a transformers config object, a dict, or a path to config.json."""
        spec = describe(config)
        return cls(
            spec.vocab_size,
            spec.n_embd,
            spec.block_size,
            positions=_rotary_of(spec) if spec.rotary else spec.positions,
            padding_idx=spec.padding_idx,
            init_std=spec.init_std,
            seed=seed,
            scale=spec.scale,
            multiplier=spec.multiplier,
            dropout=spec.dropout,
            norm_eps=spec.norm_eps,
            token_types=spec.token_types,
            row_width=spec.row_width,
            projected=spec.projected,
            position_id_rule=spec.position_id_rule,
            position_offset=spec.position_offset,
            device=device,
            dtype=dtype,
        )

    def head_from_config(
        self, config: object, *, tied: bool | None = None, device: torch.device | str | None = None
    ) -> Head:
        """The head at the other end of the same config, tied to this layer's table where the config or `tied` says so.

        Its rows and bias are made on the table's device, or on `device`: "meta" makes none, to be filled from a file.
        """
        layer_spec = describe(config)
        spec, table = layer_spec.head, self.token_embedding
        tied = spec.tied if tied is None else tied
        if device is None:
            device = table.device if isinstance(table, StoredTable) else table.weight.device
        head = Head(
            table.embedding_dim,
            self.vocab_size,
            bias=spec.bias,
            input_scale=spec.input_scale,
            scale=spec.scale,
            divisor=spec.divisor,
            soft_cap=spec.soft_cap,
            padding_idx=layer_spec.padding_idx,
            init_std=layer_spec.init_std,
            device="meta" if tied else device,  # a tied head's own rows are thrown away: never fill them
            dtype=self.dtype,
        )
        if tied:
            self.tie(head)
            if head.bias is not None:  # its bias is its own
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
    ) -> Float[Tensor, "... T D"]:
        """Hidden states (B, T, D) from exactly one of ids (B, T) and vectors (B, T, D); one text (T,) gives (T, D).

        Positions count from the left, padding included, unless position_id_rule skips it: a batch padded on the
        left needs position_ids (B, T), which override it. attention_mask matters only where that reads it.
        """
        return self._run(input_ids, inputs_embeds, position_ids, token_type_ids, attention_mask, None)

    def stages(
        self,
        input_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        position_ids: Tensor | None = None,
        *,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> list[Stage]:
        """What `forward` does, stage by stage: the rows first, the hidden states last. Of this layer only the stages it
        has.
        """
        seen: list[Stage] = []
        self._run(input_ids, inputs_embeds, position_ids, token_type_ids, attention_mask, seen)
        return seen

    def _run(
        self,
        input_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        position_ids: Tensor | None,
        token_type_ids: Tensor | None,
        attention_mask: Tensor | None,
        seen: list[Stage] | None,
    ) -> Tensor:
        """The one way through the layer; `seen` takes down every stage where somebody wants to watch."""
        if (input_ids is None) == (inputs_embeds is None):
            raise InputError(
                "neither input_ids nor inputs_embeds was given; give exactly one of them"
                if input_ids is None
                else "both input_ids and inputs_embeds were given; give exactly one: ids to look up, or their vectors"
            )
        single, input_ids, inputs_embeds = self._with_batch_axis(input_ids, inputs_embeds)

        def after(name: StageName, hidden: Tensor, added: Tensor | None = None) -> Tensor:
            if seen is not None:
                seen.append(Stage(name, added, hidden[0] if single else hidden))
            return hidden

        hidden = after("row", self._look_up(input_ids) if inputs_embeds is None else inputs_embeds)
        if self.scale != 1.0 and inputs_embeds is None:
            hidden = after("scale", hidden * torch.tensor(self.scale, dtype=hidden.dtype, device=hidden.device))
        if self.multiplier != 1.0:
            hidden = after("multiplier", hidden * self.multiplier)
        if self.projection is not None and self.projected == "rows":
            hidden = after("projection", self.projection(hidden))
        for name, added in self._added(hidden, input_ids, position_ids, token_type_ids, attention_mask):
            hidden = after(name, add_up(hidden, added), added)
        if self.norm is not None:
            hidden = after("norm", self.norm(hidden))
        hidden = self.dropout(hidden)
        if self.projection is not None and self.projected == "sum":
            hidden = after("projection", self.projection(hidden))
        return hidden[0] if single else hidden

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

    def _look_up(self, ids: Tensor | None) -> Tensor:
        if not isinstance(self.token_embedding, (Table, StoredTable)):  # from elsewhere, it does not check for itself
            assert ids is not None  # _run let exactly one of the two in
            check_id_range(ids, self.vocab_size)
        rows: Tensor = self.token_embedding(ids)
        return rows

    def _added(
        self,
        hidden: Tensor,
        ids: Tensor | None,
        position_ids: Tensor | None,
        token_type_ids: Tensor | None,
        attention_mask: Tensor | None,
    ) -> Iterator[tuple[StageName, Tensor]]:
        """What is summed onto the rows, in the models' own order: token types, then absolute positions."""
        batch, tokens = hidden.shape[:2]
        if attention_mask is not None:
            attention_mask = _check_mask(attention_mask, batch, tokens)
        if self.token_type_embedding is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros(1, 1, dtype=torch.int64, device=hidden.device)
            else:
                token_type_ids = _check_one_a_token(token_type_ids, batch, tokens, "token_type_ids")
            yield "token type", self.token_type_embedding(token_type_ids)
        elif token_type_ids is not None:
            raise InputError("token_type_ids were given, but this layer has no token types")
        if isinstance(self.position_embedding, (LearnedPositions, SinusoidalPositions)):
            if position_ids is None:
                position_ids = self.position_id_rule.number((batch, tokens), hidden.device, ids, attention_mask)
            else:
                position_ids = _check_one_a_token(position_ids, batch, tokens, "position_ids")
            yield "position", self.position_embedding(position_ids).to(hidden.dtype)

    def rotary(
        self, position_ids: Tensor, layer_type: str | None = None
    ) -> tuple[Float[Tensor, "... T R"], Float[Tensor, "... T R"]]:
        """cos and sin for the attention, in the table's dtype; `layer_type` where a model's layers differ (Gemma-3)."""
        if not isinstance(self.position_embedding, RotaryPositions):
            raise InputError("this layer's positions are not rotary, so there is no cos and sin to prepare")
        cos_sin: tuple[Tensor, Tensor] = self.position_embedding(position_ids, self.dtype, layer_type)
        return cos_sin

    # ---- the table and its ties

    @property
    def vocab_size(self) -> int:
        return self.token_embedding.num_embeddings

    @property
    def padding_idx(self) -> int | None:
        return self.token_embedding.padding_idx

    @property
    def dtype(self) -> torch.dtype:
        table = self.token_embedding
        return table.dtype if isinstance(table, StoredTable) else table.weight.dtype

    def get_input_embeddings(self) -> nn.Embedding | StoredTable:
        return self.token_embedding

    def set_input_embeddings(self, table: nn.Embedding | StoredTable) -> None:
        """Put another table in place of this one; heads tied to this layer follow."""
        width = self.token_embedding.embedding_dim
        if isinstance(table, StoredTable):  # its weight is the whole table: not read to learn its size
            if table.embedding_dim != width:
                raise ShapeError(f"the new table's rows have width {table.embedding_dim}; this layer's have {width}")
            rows = table.num_embeddings
        else:
            rows = check_float(getattr(table, "weight", None), "the new table's weight", width=width, rank=2).shape[0]
        self.token_embedding = table
        self._resize_biases(rows)

    def resize(
        self,
        new_vocab_size: int,
        pad_to_multiple_of: int | None = None,
        init: str = "mean",
        *,
        allow_shrink: bool = False,
    ) -> int:
        """Grow the table; old rows keep every bit, tied heads follow. Returns the new number of rows."""
        if not isinstance(self.token_embedding, Table):
            raise InputError(f"a {type(self.token_embedding).__name__} cannot be resized; only inlayer's own Table can")
        rows = self.token_embedding.resize(
            new_vocab_size, pad_to_multiple_of=pad_to_multiple_of, init=init, allow_shrink=allow_shrink
        )
        self._resize_biases(rows)
        return rows

    def _resize_biases(self, rows: int) -> None:
        for head in self._tied_heads:
            if head.tied and head.table is self.token_embedding:  # not tied to another layer since
                head.resize_bias(rows)

    def tie(self, head: object) -> None:
        """Let the head read this layer's table: one table, learned from both ends."""
        if not isinstance(head, Head):
            raise InputError(f"a {type(head).__name__} cannot be tied by module; use inlayer.Head as the head")
        head.tie(self)
        if all(head is not known for known in self._tied_heads):
            self._tied_heads.append(head)

    def extra_repr(self) -> str:
        return f"vocab_size={self.vocab_size}, n_embd={self.n_embd}, scale={self.scale}"


def _check_settings(
    *,
    positions: object,
    scale: float,
    multiplier: float,
    dropout: float,
    norm_eps: float | None,
    token_types: int,
    row_width: int | None,
    projected: str,
    position_id_rule: object,
    head_dim: int | None,
    dtype: object,
) -> None:
    """What would otherwise be ignored, or go wrong later and elsewhere."""
    if isinstance(positions, str) and positions not in SCHEMES:
        raise ConfigError(f"unknown positions {positions!r}; choose one of {', '.join(SCHEMES)}")
    if not isinstance(positions, (str, LearnedPositions, SinusoidalPositions, RotaryPositions, NoneType)):
        raise ConfigError(
            f"positions is a {type(positions).__name__}; give one of {', '.join(SCHEMES)}, or a module that makes them"
        )
    if head_dim is not None and positions != "rotary":
        raise ConfigError(f'head_dim {head_dim} is for positions="rotary"; a Rotary module has its own')
    if projected not in PROJECTIONS or (row_width is None) != (projected == "no"):
        raise ConfigError(
            f"row_width is {row_width} and projected {projected!r}; they go together: rows narrower than n_embd are "
            f"projected, by one of {', '.join(PROJECTIONS[1:])}"
        )
    if position_id_rule is not None and not isinstance(position_id_rule, PositionIdRule):
        raise ConfigError(
            f"position_id_rule is {position_id_rule!r}; give a PositionIdRule, such as PositionIdRule(by='mask')"
        )
    if not (is_finite(scale) and is_finite(multiplier)):
        raise ConfigError(f"scale is {scale!r} and multiplier {multiplier!r}; both are finite numbers")
    if not (is_finite(dropout) and 0 <= dropout <= 1):
        raise ConfigError(f"dropout is {dropout!r}; it is a share in 0..1")
    if norm_eps is not None and not (is_finite(norm_eps) and norm_eps > 0):
        raise ConfigError(f"norm_eps is {norm_eps!r}; it is a small positive number, 1e-5 or less")
    if not isinstance(token_types, int) or token_types < 0:
        raise ConfigError(f"token_types is {token_types!r}; it counts the rows of the segment table, 0 for none")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise DtypeError(f"dtype is {dtype!r}; give a torch dtype, such as torch.float32")


def _seeds(seed: int | None) -> tuple[int | None, int | None, int | None]:
    """Three independent sources from one seed: were it used thrice, position 0 would equal token 0."""
    if seed is None:
        return None, None, None
    check_seed(seed)
    first, second, third = torch.randint(2**62, (3,), generator=torch.Generator().manual_seed(seed)).tolist()
    return first, second, third


def _rotary_of(spec: LayerSpec) -> RotaryPositions:
    assert spec.rotary is not None
    rotary = spec.rotary
    return RotaryPositions(
        rotary.head_dim, rotary.angles, pairing=rotary.pairing, layout=rotary.layout, float32=rotary.float32
    )


def _width(positions: LearnedPositions | SinusoidalPositions) -> int:
    return positions.embedding_dim if isinstance(positions, LearnedPositions) else positions.n_embd


def _check_mask(mask: object, batch: int, tokens: int) -> Tensor:
    if not isinstance(mask, Tensor):
        raise DtypeError(f"attention_mask is a {type(mask).__name__}, not a torch tensor")
    if mask.dim() == 1 and batch == 1:
        mask = mask[None]
    if tuple(mask.shape) != (batch, tokens):
        raise ShapeError(
            f"attention_mask has shape {tuple(mask.shape)}; expected ({batch}, {tokens}), 1 for a real token"
        )
    return mask


def _check_one_a_token(ids: Tensor, batch: int, tokens: int, name: str) -> Tensor:
    """Position or type ids that fit the input: a shape that only broadcasts would change the batch unasked."""
    ids = check_ids(ids, name)
    if tuple(ids.shape) not in {(tokens,), (1, tokens), (batch, tokens)}:
        raise ShapeError(f"{name} has shape {tuple(ids.shape)}; expected ({batch}, {tokens}) or ({tokens},)")
    return ids
