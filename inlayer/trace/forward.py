"""The forward pass of a walk, as tensors: a batch of ids or vectors through every stage of the layer.

text -> [ids -> rows -> (+ positions) -> hidden states] -> head
- several texts form a batch; shorter ones are padded at the end
- vectors can replace ids; the walk then starts with the gathered rows
- only the first `max_tokens` tokens are run, with the positions they have in the whole text
- elsewhere: tokenizing (trace/tokenization.py), converting the result to facts (trace/run.py)
Tested in tests/trace/test_walk.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from inlayer.embeddings import Embeddings, LayerStage
from inlayer.errors import DtypeError, InputError
from inlayer.positions import LearnedPositions, SinusoidalPositions, make_position_ids
from inlayer.ragged import Ragged
from inlayer.tables import check_id_range
from inlayer.tensors import check_float
from inlayer.tokenizers import Token
from inlayer.trace.facts import Change, TextTrace
from inlayer.trace.schemes import ActiveLayer, Rotary
from inlayer.trace.tokenization import label_of, tokenize

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

__all__ = ["Batch", "Forward", "UniqueRows", "batch_texts", "batch_vectors", "forward"]


class Batch(NamedTuple):
    """The input of the layer: ids or vectors, and the mask. `tokens` are in the order they are run, after a swap."""

    texts: list[TextTrace]  # without their tokens; empty for vectors
    tokens: list[list[Token]]
    ids_BT: Tensor | None
    embeds_BTD: Tensor | None
    mask_BT: Tensor


class UniqueRows(NamedTuple):
    """The unique ids of a batch and their rows; `inverse_BT` indexes them, as torch.unique returns it."""

    ids_U: Tensor
    inverse_BT: Tensor
    rows_UD: Tensor

    @classmethod
    def of(cls, ids_BT: Tensor, rows_BTD: Tensor) -> UniqueRows:
        """Remove repeated ids."""
        ids_U, inverse_BT = torch.unique(ids_BT, return_inverse=True)
        flat = inverse_BT.flatten()
        place_U = torch.zeros_like(ids_U).index_copy_(0, flat, torch.arange(len(flat)))  # one occurrence of each id
        return cls(ids_U, inverse_BT, rows_BTD.flatten(0, 1)[place_U])


@dataclass(frozen=True, kw_only=True)
class Forward:
    """The result of a forward pass, and the settings it was run with."""

    pipeline: Pipeline
    batch: Batch
    change: Change
    dims: int
    max_tokens: int
    active: ActiveLayer
    position_BT: Tensor  # of the tokens shown
    stages: list[LayerStage]  # the rows first, the hidden states last
    rotary: list[Rotary]
    unique: UniqueRows | None  # None if vectors were given
    names: dict[int, str]  # of the unique ids, as spelled in the vocabulary

    @property
    def length(self) -> int:
        """Tokens per text, padding included."""
        return self.batch.mask_BT.shape[1]

    @property
    def shown(self) -> int:
        """Tokens per text that were run."""
        return self.position_BT.shape[1]

    @property
    def layer_position_ids(self) -> Tensor | None:
        """Position ids to pass to the layer, if its positions are added."""
        return self.position_BT if _is_absolute(self.active.layer) else None

    def label(self, token: Token | None, token_id: int) -> str:
        """Label a token of the batch; None stands for padding."""
        name = self.names[token_id]
        if token is not None:
            return label_of(token, name)
        return "<pad>" if name == f"#{token_id}" else name


def batch_texts(pipeline: Pipeline, texts: Sequence[str], max_tokens: int, change: Change) -> Batch:
    """Tokenize texts, apply the swap, and pad."""
    if pipeline.tokenizer is None:
        raise InputError(f"{pipeline.source} has no tokenizer; choose one, or pass inputs_embeds")
    tokenizations = [tokenize(text, pipeline, max_tokens) for text in texts]
    tokens = [list(one.tokens) for one in tokenizations]
    if change.swap is not None:
        first, second = _check_swap(change.swap, len(tokens[0]))
        tokens[0][first], tokens[0][second] = tokens[0][second], tokens[0][first]
    ragged = Ragged.from_lists([[token.id for token in one] for one in tokens])
    padding = pipeline.padding_id
    if padding is None and (change.pad or len(set(ragged.counts.tolist())) > 1):
        raise InputError(
            f"{pipeline.source} has no padding token; walk one text, or texts with the same number of tokens, unpadded"
        )
    ids_BT, mask_BT = ragged.padded(padding or 0)
    if change.pad:
        ids_BT = functional.pad(ids_BT, (0, change.pad), value=padding)
        mask_BT = functional.pad(mask_BT, (0, change.pad))
    return Batch([one.trace for one in tokenizations], tokens, ids_BT, None, mask_BT)


def _check_swap(swap: object, count: int) -> tuple[int, int]:
    if not (isinstance(swap, (tuple, list)) and len(swap) == 2 and all(type(index) is int for index in swap)):
        raise InputError(f"swap is {swap!r}; give the indices of two tokens, such as (0, 1)")
    for index in swap:
        if not 0 <= index < count:
            allowed = f"tokens 0..{count - 1}" if count else "no tokens"
            raise InputError(f"token {index} cannot be swapped: the first text has {allowed}")
    return swap[0], swap[1]


def batch_vectors(pipeline: Pipeline, inputs_embeds: object, change: Change) -> Batch:
    """Check vectors that replace a text."""
    if change.swap is not None or change.pad:
        raise InputError("swap and pad apply to tokens; they cannot be combined with inputs_embeds")
    width = pipeline.layer.token_embedding.embedding_dim
    vectors = check_float(inputs_embeds, "inputs_embeds", width=width)
    if vectors.dim() not in (2, 3):
        raise DtypeError(f"inputs_embeds has shape {tuple(vectors.shape)}; expected (B, T, D) or (T, D)")
    embeds_BTD = vectors if vectors.dim() == 3 else vectors[None]
    return Batch([], [], None, embeds_BTD, torch.ones(embeds_BTD.shape[:2], dtype=torch.int64))


def forward(pipeline: Pipeline, batch: Batch, change: Change, dims: int, max_tokens: int) -> Forward:
    """Run the layer on the first tokens of the batch."""
    active = pipeline.active_layer(change.positions, change.theta)
    layer = active.layer
    length = batch.mask_BT.shape[1]
    shown = min(length, max_tokens)
    position_BT = _position_ids(layer, batch)
    if batch.ids_BT is not None:
        check_id_range(batch.ids_BT, layer.vocab_size)
    if _is_absolute(layer) and length > shown:
        assert layer.position_embedding is not None
        layer.position_embedding(position_BT.max())  # raises if the whole text is too long for the layer
    ids_BT = None if batch.ids_BT is None else batch.ids_BT[:, :shown]
    stages = layer.stages(
        ids_BT,
        None if batch.embeds_BTD is None else batch.embeds_BTD[:, :shown],
        position_BT[:, :shown] if _is_absolute(layer) else None,
    )
    unique = None if ids_BT is None else UniqueRows.of(ids_BT, stages[0].after)
    return Forward(
        pipeline=pipeline,
        batch=batch,
        change=change,
        dims=dims,
        max_tokens=max_tokens,
        active=active,
        position_BT=position_BT[:, :shown],
        stages=stages,
        rotary=pipeline.rotations(change.positions, change.theta, shown, length, dims),
        unique=unique,
        names={} if unique is None else {one: pipeline.spelling(one) for one in unique.ids_U.tolist()},
    )


def _is_absolute(layer: Embeddings) -> bool:
    return isinstance(layer.position_embedding, (LearnedPositions, SinusoidalPositions))


def _position_ids(layer: Embeddings, batch: Batch) -> Tensor:
    """Return the position of every token (B, T), by the layer's own rule."""
    shape = batch.mask_BT.shape[0], batch.mask_BT.shape[1]
    if _is_absolute(layer):
        numbered = make_position_ids(layer.position_id_rule, shape, batch.mask_BT.device, batch.ids_BT, batch.mask_BT)
    else:
        numbered = torch.arange(shape[1])[None]
    return numbered.expand(shape)
