"""The forward pass of a walk, as tensors: texts or vectors through every stage of the layer.

[text -> ids -> rows -> (+ positions) -> hidden states] -> head
- each text is tokenized once; bytes, pre-tokens, merges and ids all come from that call. Vectors can replace a text
- only the tokens in the recorded range are run, with the positions they have in the whole text
- see also: converting the result to facts (trace/record.py)
Tested in tests/trace/test_tokenization.py and tests/trace/test_walk.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from inlayer.errors import DtypeError, InputError, type_name
from inlayer.positions import LearnedPositions, SinusoidalPositions, make_position_ids
from inlayer.render.numbers import pluralize
from inlayer.tables import check_id_range
from inlayer.tensors import check_float
from inlayer.tokenizers import Token
from inlayer.tokenizers.base import text_of_bytes
from inlayer.trace.facts import Change, Character, PreToken, Span, TextTrace
from inlayer.trace.position_schemes import Rotary

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

MAX_PADDING = 4096
MAX_MERGED_TOKENS = 256  # the merges of a longer pre-token are not recorded


class RecordedRange(NamedTuple):
    """The part of a walk that is recorded."""

    tokens: int  # maximum number of tokens per text
    dims: int  # channels per vector
    first_token: int = 0
    first_channel: int = 0

    @property
    def channels(self) -> slice:
        """The channels of a vector."""
        return slice(self.first_channel, self.first_channel + self.dims)

    @property
    def end(self) -> int:
        """The token after the last one."""
        return self.first_token + self.tokens


class UniqueRows(NamedTuple):
    """The unique ids of a batch and their rows; `inverse_BT` indexes them, as torch.unique returns it."""

    ids_U: Tensor
    inverse_BT: Tensor
    rows_UD: Tensor


class Forward:
    """One forward pass: the settings of a walk, its batch, and every tensor up to the hidden states."""

    def __init__(self, pipeline: Pipeline, change: Change, recorded: RecordedRange) -> None:
        for name, value in recorded._asdict().items():
            minimum = 0 if name.startswith("first_") else 1
            if type(value) is not int or value < minimum:
                raise InputError(f"{name} is {value!r}; it must be an integer of at least {minimum}")
        if not isinstance(change.pad, int) or not 0 <= change.pad <= MAX_PADDING:
            raise InputError(f"pad is {change.pad!r}; it must be in 0..{MAX_PADDING:,}")
        self.pipeline, self.change, self.recorded = pipeline, change, recorded
        self.active = pipeline.active_layer(change.positions, change.theta)
        self.texts: list[TextTrace] = []  # their tokens are added later
        self.tokens: list[list[Token]] = []  # in the order they are run, after a swap
        self.unique: UniqueRows | None = None  # None if vectors were given
        self.ids_BT: Tensor | None = None  # ids of the whole texts

    def run_texts(self, texts: object) -> Forward:
        """Tokenize texts, apply the swap, pad, and run the layer."""
        if isinstance(texts, (bytes, str)) or not isinstance(texts, Iterable):
            raise DtypeError(f"texts is {type_name(texts)}; pass a str or a list of str")
        if not (inputs := list(texts)):
            raise InputError("texts is empty; pass at least one text")
        pipeline, change = self.pipeline, self.change
        if pipeline.tokenizer is None:
            raise InputError(f"{pipeline.source} has no tokenizer; choose one, or pass inputs_embeds")
        for text in inputs:
            trace, tokens = tokenize(text, pipeline, self.recorded)
            self.texts.append(trace)
            self.tokens.append(list(tokens))
        if change.swap is not None:
            swapped = self.tokens[0]
            first, second = _check_swap(change.swap, min(len(swapped), self.recorded.end))
            swapped[first], swapped[second] = swapped[second], swapped[first]
        ids, padding = [[token.id for token in tokens] for tokens in self.tokens], pipeline.padding_id
        missing = [max(map(len, ids)) - len(row) + change.pad for row in ids]
        if padding is None and any(missing):
            hint = "walk one text, or texts with the same number of tokens, unpadded"
            raise InputError(f"{pipeline.source} has no padding token; {hint}")
        padded = [row + [padding or 0] * n for row, n in zip(ids, missing, strict=True)]
        mask = [[True] * len(row) + [False] * n for row, n in zip(ids, missing, strict=True)]
        ids_BT, mask_BT = torch.tensor(padded, dtype=torch.int64), torch.tensor(mask, dtype=torch.bool)
        check_id_range(ids_BT, self.active.layer.vocab_size)
        self._run(mask_BT, ids_BT, None)
        ids_U, inverse_BT = torch.unique(ids_BT[:, self.shown], return_inverse=True)
        rows_BTD = self.stages[0].output
        rows_UD = rows_BTD.new_empty(len(ids_U), rows_BTD.shape[-1])
        rows_UD[inverse_BT] = rows_BTD  # every occurrence of an id has the same row
        self.unique = UniqueRows(ids_U, inverse_BT, rows_UD)
        return self

    def run_vectors(self, inputs_embeds: object) -> Forward:
        """Run the layer on vectors (T, D) or (B, T, D) that replace a text."""
        if self.change.swap is not None or self.change.pad:
            raise InputError("swap and pad apply to tokens; they cannot be combined with inputs_embeds")
        width = self.pipeline.layer.token_embedding.embedding_dim
        vectors = check_float(inputs_embeds, "inputs_embeds", width=width)
        if vectors.dim() not in (2, 3):
            raise DtypeError(f"inputs_embeds has shape {tuple(vectors.shape)}; expected (B, T, D) or (T, D)")
        embeds_BTD = vectors if vectors.dim() == 3 else vectors[None]
        no_text = TextTrace(
            text=None, n_characters=0, n_bytes=0, characters=[], pre_tokens=None, n_pre_tokens=0,
            n_tokens=embeds_BTD.shape[1], n_padding=0, tokens=[],
        )  # fmt: skip
        self.texts = [no_text] * len(embeds_BTD)
        self._run(torch.ones(embeds_BTD.shape[:2], dtype=torch.int64), None, embeds_BTD)
        return self

    def _run(self, mask_BT: Tensor, ids_BT: Tensor | None, embeds_BTD: Tensor | None) -> None:
        layer, (batch, length) = self.active.layer, mask_BT.shape
        first, end = self.recorded.first_token, min(length, self.recorded.end)
        if first and first >= length:
            limit = f"{max(0, length - 1):,}"
            raise InputError(
                f"first_token is {first:,}; the longest text has {pluralize(length, 'token')}; the maximum is {limit}"
            )
        self.shown = shown = slice(first, end)  # the tokens that are run
        self.ids_BT, self.whole_mask_BT = ids_BT, mask_BT
        position_BT, positions = torch.arange(length)[None].expand(batch, length), layer.position_embedding
        self.mask_BT, self.length, self.count = mask_BT[:, shown], length, end - first  # in tokens: total, run
        self.position_BT, self.layer_position_ids = position_BT[:, shown], None
        if isinstance(positions, (LearnedPositions, SinusoidalPositions)):
            position_ids = make_position_ids(layer.position_id_rule, (batch, length), mask_BT.device, ids_BT, mask_BT)
            self.position_BT = self.layer_position_ids = position_ids.expand(batch, length)[:, shown]
            if length > end:
                positions(position_ids.max())  # raises if the whole text is too long for the layer
        self.stages = layer.stages(  # the rows first, the hidden states last
            None if ids_BT is None else ids_BT[:, shown],
            None if embeds_BTD is None else embeds_BTD[:, shown],
            self.layer_position_ids,
            history=self.history,
        )
        self.width = self.stages[-1].output.shape[-1]
        if self.recorded.first_channel >= (widest := max(self.width, self.stages[0].output.shape[-1])):
            raise InputError(f"first_channel is {self.recorded.first_channel:,}; it must be in 0..{widest - 1:,}")

    @property
    def history(self) -> Tensor | None:
        """The ids before the recorded range, which n-grams reach back to."""
        return None if self.ids_BT is None else self.ids_BT[:, : self.recorded.first_token]

    @cached_property
    def rotary(self) -> list[Rotary]:
        """The rotary angles of the tokens, which are the same for every text of this length."""
        change, dims = self.change, self.recorded.dims
        return self.pipeline.rotations(change.positions, change.theta, self.shown.start, self.count, self.length, dims)

    def label(self, b: int, t: int, token_id: int) -> str:
        """Label a token by its text, by its bytes if they are not whole characters, or by name if it is special."""
        name, token = self.pipeline.spelling(token_id), self.token(b, t)
        if token is None:
            return "<pad>" if name == f"#{token_id}" else name
        return name if token.special or not token.bytes else text_of_bytes(token.bytes)

    def token(self, b: int, t: int) -> Token | None:
        """Return a token of the recorded range; None for padding."""
        t += self.recorded.first_token
        return self.tokens[b][t] if t < len(self.tokens[b]) else None


def _check_swap(swap: object, shown: int) -> tuple[int, int]:
    if not (isinstance(swap, (tuple, list)) and len(swap) == 2 and all(type(index) is int for index in swap)):
        raise InputError(f"swap is {swap!r}; pass the indices of two tokens, such as (0, 1)")
    if outside := [index for index in swap if not 0 <= index < shown]:
        tokens = f"tokens 0 to {shown - 1}" if shown > 1 else "only token 0" if shown else "no tokens"
        raise InputError(f"token {outside[0]} cannot be swapped: the first text shows {tokens}")
    if swap[0] == swap[1]:
        raise InputError(f"token {swap[0]} cannot be swapped with itself; choose two different tokens")
    return swap[0], swap[1]


def tokenize(text: str, pipeline: Pipeline, recorded: RecordedRange) -> tuple[TextTrace, list[Token]]:
    """Tokenize a text; characters and pre-tokens are recorded for the tokens of the recorded range."""
    tokens, spans = pipeline.analyze(text)
    source = text.encode()
    first, end = 0, len(source)
    if recorded.first_token:
        first = min((token.span[0] for token in tokens[recorded.first_token :]), default=end)
    if len(tokens) > recorded.end:
        end = max((token.span[1] for token in tokens[: recorded.end]), default=0)
    while first and source[first : first + 1] and source[first] & 0xC0 == 0x80:  # not in the middle of a character
        first -= 1
    while end < len(source) and source[end] & 0xC0 == 0x80:
        end += 1
    part = source[first:end].decode()
    trace = TextTrace(
        text=part,
        n_characters=len(text),
        n_bytes=len(source),
        characters=[Character(text=character, bytes=character.encode().hex()) for character in part],
        pre_tokens=None if spans is None else _pre_tokens(source, spans, tokens, recorded, pipeline),
        n_pre_tokens=0 if spans is None else len(spans),
        n_tokens=len(tokens),
        n_padding=0,
        tokens=[],
    )
    return trace, tokens


def _pre_tokens(
    source: bytes, spans: Sequence[Span], tokens: Sequence[Token], recorded: RecordedRange, pipeline: Pipeline
) -> list[PreToken]:
    """Assign tokens to the pre-tokens that have a token in the recorded range."""
    # Tokens that the tokenizer added around the text (BOS, EOS) cover no bytes and belong to no pre-token.
    body = [index for index, token in enumerate(tokens) if token.bytes or not token.special]
    first, stop = (body[0], body[-1] + 1) if body else (0, 0)
    pre_tokens = []
    for start, end in spans:
        while first < stop and tokens[first].span[0] < start:
            first += 1
        next_first = first
        while next_first < stop and tokens[next_first].span[1] <= end:
            next_first += 1
        if first >= recorded.end:
            break
        if recorded.first_token and next_first <= recorded.first_token:
            first = next_first
            continue
        ids = tuple(token.id for token in tokens[first:next_first])
        merges = pipeline.merges(ids) if len(ids) <= MAX_MERGED_TOKENS else None
        covered = max(first - recorded.first_token, 0), min(next_first, recorded.end) - recorded.first_token
        pre_tokens.append(PreToken(span=(start, end), bytes=source[start:end].hex(), tokens=covered, merges=merges))
        first = next_first
    return pre_tokens
