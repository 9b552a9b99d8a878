"""The forward pass of a walk, as tensors: texts or vectors through every stage of the layer.

[text -> ids -> rows -> (+ positions) -> hidden states] -> head
- each text is tokenized once; bytes, pre-tokens, merges, and ids all come from that call. Vectors can replace a text
- only the tokens in the recorded range are run, with the positions they have in the whole text
- see also: converting the result to facts (trace/record.py)
Tested in tests/trace/test_walk.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from inlayer.checks import check_type
from inlayer.errors import DtypeError, InputError, type_name
from inlayer.positions import LearnedPositions, SinusoidalPositions, make_position_ids
from inlayer.render.numbers import pluralize
from inlayer.tables import check_id_range
from inlayer.tensors import with_batch_axis
from inlayer.tokenizers import Token
from inlayer.tokenizers.base import text_of_bytes
from inlayer.trace.facts import Change, Span
from inlayer.trace.position_schemes import Rotary

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

MAX_PADDING = 4096


class RecordedRange(NamedTuple):
    """The part of a walk that is recorded."""

    max_tokens: int  # per text
    dims: int  # channels per vector
    first_token: int = 0
    first_channel: int = 0

    @property
    def channels(self) -> slice:
        return slice(self.first_channel, self.first_channel + self.dims)

    @property
    def end(self) -> int:
        """The index after the last recorded token."""
        return self.first_token + self.max_tokens


class TokenizedText(NamedTuple):
    """A text with its tokens and, if the tokenizer reports them, the spans of its pre-tokens."""

    text: str
    tokens: list[Token]
    spans: list[Span] | None


class UniqueRows(NamedTuple):
    """The unique ids of a batch and their rows; `inverse_BT` has the index of each token's row, as in torch.unique."""

    ids_U: Tensor
    inverse_BT: Tensor
    rows_UD: Tensor


class ForwardPass:
    """One forward pass: the settings of a walk, its batch, and every tensor up to the hidden states.

    Attributes, once texts or vectors have been run:
        n_tokens: Tokens of the longest text, with padding.
        shown: The slice of these tokens that is recorded; only this slice is run.
        n_shown: Tokens in this slice.
        mask_BT: The mask of the slice: false for padding.
        mask_BS: The mask of the slice and of all tokens before it, which n-grams reach back to.
        position_BT: The position ids of the slice.
        stages: The steps of the layer with their outputs: the rows first, the hidden states last.
        width: Channels of a hidden state.
    """

    def __init__(self, pipeline: Pipeline, change: Change, recorded: RecordedRange) -> None:
        for name, value in recorded._asdict().items():
            minimum = 0 if name.startswith("first_") else 1
            if type(value) is not int or value < minimum:
                raise InputError(f"{name} is {value!r}; it must be an integer of at least {minimum}")
        if not isinstance(change.pad, int) or not 0 <= change.pad <= MAX_PADDING:
            raise InputError(f"pad is {change.pad!r}; it must be in 0..{MAX_PADDING:,}")
        if change.positions is not None:
            check_type(change.positions, str, "positions")
        if change.theta is not None and (not isinstance(change.theta, (int, float)) or isinstance(change.theta, bool)):
            raise DtypeError(f"theta is {change.theta!r}; it must be a number above 0, such as 10000")
        self.pipeline, self.change, self.recorded = pipeline, change, recorded
        self.active = pipeline.active_layer(change.positions, change.theta)
        self.texts: list[TokenizedText] = []  # empty if vectors were given
        self.tokens: list[list[Token]] = []  # each text's tokens in the order they are run, after a swap
        self.ids_BT: Tensor | None = None  # ids of the tokens that are run; None if vectors were given
        self.history: Tensor | None = None  # the ids before those, which n-grams reach back to
        self.unique: UniqueRows | None = None

    def run_texts(self, texts: object) -> ForwardPass:
        """Tokenize texts, apply the swap, pad, and run the layer."""
        if isinstance(texts, (bytes, str)) or not isinstance(texts, Iterable):
            raise DtypeError(f"texts is {type_name(texts)}; pass a str or a list of str")
        if not (inputs := list(texts)):
            raise InputError("texts is empty; pass at least one text")
        pipeline, change = self.pipeline, self.change
        if pipeline.tokenizer is None:
            raise InputError(f"{pipeline.source} has no tokenizer; choose one, or pass inputs_embeds")
        self.texts = [pipeline.tokenize(text) for text in inputs]
        self.tokens = [list(text.tokens) for text in self.texts]
        if change.swap is not None:
            swapped = self.tokens[0]
            first, second = _check_swap(change.swap, min(len(swapped), self.recorded.end))
            swapped[first], swapped[second] = swapped[second], swapped[first]
        length = max(map(len, self.tokens)) + change.pad
        mask_BT = torch.arange(length) < torch.tensor([[len(tokens)] for tokens in self.tokens])
        if pipeline.padding_id is None and not mask_BT.all():
            hint = "walk one text, or texts with the same number of tokens, unpadded"
            raise InputError(f"{pipeline.source} has no padding token; {hint}")
        ids_BT = torch.full(mask_BT.shape, pipeline.padding_id or 0)
        ids_BT[mask_BT] = torch.tensor([token.id for tokens in self.tokens for token in tokens], dtype=torch.int64)
        check_id_range(ids_BT, self.active.layer.vocab_size)
        self._run(mask_BT, ids_BT, None)
        assert self.ids_BT is not None
        ids_U, inverse_BT = torch.unique(self.ids_BT, return_inverse=True)
        rows_BTD = self.stages[0].output
        rows_UD = rows_BTD.new_empty(len(ids_U), rows_BTD.shape[-1])
        rows_UD[inverse_BT] = rows_BTD  # every occurrence of an id has the same row
        self.unique = UniqueRows(ids_U, inverse_BT, rows_UD)
        return self

    def run_vectors(self, inputs_embeds: Tensor) -> ForwardPass:
        """Run the layer on vectors (T, D) or (B, T, D) that replace a text."""
        if self.change.swap is not None or self.change.pad:
            raise InputError("swap and pad apply to tokens; they cannot be combined with inputs_embeds")
        _, _, embeds_BTD = with_batch_axis(None, inputs_embeds, self.pipeline.layer.token_embedding.embedding_dim)
        assert embeds_BTD is not None
        self._run(torch.ones(embeds_BTD.shape[:2], dtype=torch.bool), None, embeds_BTD)
        return self

    def _run(self, mask_BT: Tensor, ids_BT: Tensor | None, embeds_BTD: Tensor | None) -> None:
        layer, (batch, n_tokens) = self.active.layer, mask_BT.shape
        first, end = self.recorded.first_token, min(n_tokens, self.recorded.end)
        if first and first >= n_tokens:
            limits = f"the longest text has {pluralize(n_tokens, 'token')}; the maximum is {max(0, n_tokens - 1):,}"
            raise InputError(f"first_token is {first:,}; {limits}")
        shown = slice(first, end)
        self.n_tokens, self.shown, self.n_shown = n_tokens, shown, end - first
        self.mask_BT, self.mask_BS = mask_BT[:, shown], mask_BT[:, :end]
        if ids_BT is not None:
            self.history, self.ids_BT = ids_BT[:, :first], ids_BT[:, shown]
        position_BT, positions = torch.arange(n_tokens)[None], layer.position_embedding
        if isinstance(positions, (LearnedPositions, SinusoidalPositions)):
            position_BT = make_position_ids(layer.position_id_rule, (batch, n_tokens), mask_BT.device, ids_BT, mask_BT)
            if n_tokens > end:
                positions(position_BT.max())  # raises if the whole text is too long for the layer
        self.position_BT = position_BT.expand(batch, n_tokens)[:, shown]
        embeds_BTD = None if embeds_BTD is None else embeds_BTD[:, shown]
        self.stages = layer.stages(self.ids_BT, embeds_BTD, self.position_BT, history=self.history)
        self.width = self.stages[-1].output.shape[-1]
        if self.recorded.first_channel >= (widest := max(self.width, self.stages[0].output.shape[-1])):
            raise InputError(f"first_channel is {self.recorded.first_channel:,}; it must be in 0..{widest - 1:,}")

    @cached_property
    def rotary(self) -> list[Rotary]:
        """The rotary angles of the tokens, which are the same for every text of this length."""
        change, shown = self.change, range(self.shown.start, self.shown.stop)
        return self.pipeline.rotations(change.positions, change.theta, shown, self.n_tokens, self.recorded.dims)

    def label(self, b: int, t: int, token_id: int) -> str:
        """Label a token by its text, by its bytes if they are not whole characters, or by name if it is special."""
        name, token = self.pipeline.token_text(token_id), self.token(b, t)
        if token is None:
            return "<pad>" if name == f"#{token_id}" else name
        return name if token.special or not token.bytes else text_of_bytes(token.bytes)

    def token(self, b: int, t: int) -> Token | None:
        """Return a token of the recorded range, or None for padding."""
        t += self.recorded.first_token
        return self.tokens[b][t] if t < len(self.tokens[b]) else None


def _check_swap(swap: object, shown: int) -> tuple[int, int]:
    if not (isinstance(swap, (tuple, list)) and len(swap) == 2 and all(type(index) is int for index in swap)):
        raise InputError(f"swap is {swap!r}; pass the indices of two tokens, such as (0, 1)")
    if outside := [index for index in swap if not 0 <= index < shown]:
        tokens = f"tokens 0 to {shown - 1}" if shown > 1 else "only one token" if shown else "no tokens"
        raise InputError(f"token {outside[0]} cannot be swapped: the first text shows {tokens}")
    if swap[0] == swap[1]:
        raise InputError(f"token {swap[0]} cannot be swapped with itself; choose two different tokens")
    return swap[0], swap[1]
