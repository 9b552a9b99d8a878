"""One trace of the whole line for given texts: the facts that every rendering reads, so that none can disagree.

text -> bytes -> pieces -> ids -> rows -> (+ positions) -> hidden states
- every number is read off the objects that do the work (a tokenizer and an `Embeddings`), none is made up here
- several texts make a batch: the shorter ones are padded with the layer's padding row, or else with the tokenizer's
  padding token; a model that has neither takes one text at a time
- not here: how it looks (walk/terminal.py)
Checked against the library calls in tests/walk/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from inlayer.errors import InputError
from inlayer.ids import Ragged
from inlayer.layer import Embeddings
from inlayer.positions import Learned, Rotary, Sinusoidal
from inlayer.text import Tokenizer

__all__ = ["Cell", "Trace", "TracedText", "trace_texts"]

Vector = list[float]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One token of one text, through every step. Vectors hold the first `dims` channels."""

    id: int
    token: str  # as the vocabulary spells it
    bytes: str  # hexadecimal: a piece may hold half a character
    span: tuple[int, int]
    special: bool
    position: int
    row: Vector
    added: Vector | None  # what the position adds; None where nothing is added
    cos: Vector | None  # what a rotary position prepares, one value a channel pair
    sin: Vector | None
    hidden: Vector


@dataclass(frozen=True, kw_only=True)
class TracedText:
    text: str
    bytes: str
    cells: list[Cell]
    padding: int  # tokens added behind to reach the length of the batch


@dataclass(frozen=True, kw_only=True)
class Trace:
    model: str  # whose rows these are
    tokenizer: str
    vocab_size: int
    table_shape: tuple[int, int]
    table_dtype: str
    padding_idx: int | None  # the id that fills up shorter texts
    positions: str
    shape: tuple[int, int, int]  # hidden states: batch, tokens, width
    dims: int
    texts: list[TracedText]

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts, for JSON. Not dataclasses.asdict, which copies every vector of every token."""
        texts = [vars(text) | {"cells": [vars(cell) for cell in text.cells]} for text in self.texts]
        return vars(self) | {"texts": texts}


@torch.no_grad()
def trace_texts(
    texts: Sequence[str], tokenizer: Tokenizer, layer: Embeddings, *, dims: int = 8, model: str = ""
) -> Trace:
    """Walk texts through a tokenizer and a layer whose table is at least as large as the vocabulary."""
    if not texts:
        raise InputError("there is no text to walk; give at least one")
    if dims < 1:
        raise InputError(f"dims is {dims}; show at least one channel")
    pieces = [tokenizer.pieces(text) for text in texts]
    ragged = Ragged.from_lists([[piece.id for piece in one] for one in pieces])
    padding_idx = layer.padding_idx if layer.padding_idx is not None else tokenizer.pad_id
    if padding_idx is None and len(set(ragged.counts.tolist())) > 1:
        raise InputError(f"{model or 'this model'} has no padding row or token; walk texts of one length, or one text")
    ids_BT, _ = ragged.padded(padding_idx or 0)
    rows_BTD, hidden_BTD = layer.token_embedding(ids_BT), layer(ids_BT)
    position = layer.position_embedding
    order_T = torch.arange(ids_BT.shape[1])
    added_TD = position(order_T) if isinstance(position, (Learned, Sinusoidal)) else None
    cos_TR, sin_TR = layer.rotary(order_T) if isinstance(position, Rotary) else (None, None)

    spelled = {
        token_id: tokenizer.token_bytes(token_id).decode(errors="backslashreplace")
        for token_id in set(ragged.flat.tolist())
    }
    # Whole tensors to lists at once: a cell at a time would cost a second every few thousand tokens.
    rows, hidden = rows_BTD[..., :dims].tolist(), hidden_BTD[..., :dims].tolist()
    added, cos, sin = (None if x is None else x[:, :dims].tolist() for x in (added_TD, cos_TR, sin_TR))

    def cell(b: int, t: int) -> Cell:
        piece = pieces[b][t]
        return Cell(
            id=piece.id,
            token=spelled[piece.id],
            bytes=piece.bytes.hex(),
            span=piece.span,
            special=piece.special,
            position=t,
            row=rows[b][t],
            added=None if added is None else added[t],
            cos=None if cos is None else cos[t],
            sin=None if sin is None else sin[t],
            hidden=hidden[b][t],
        )

    batch, tokens, width = hidden_BTD.shape
    return Trace(
        model=model,
        tokenizer=repr(tokenizer),
        vocab_size=tokenizer.get_vocab_size(),
        table_shape=(layer.vocab_size, layer.token_embedding.embedding_dim),
        table_dtype=str(layer.dtype).removeprefix("torch."),
        padding_idx=padding_idx,
        positions="none" if position is None else type(position).__name__.lower(),
        shape=(batch, tokens, width),
        dims=min(dims, width),
        texts=[
            TracedText(
                text=text,
                bytes=text.encode().hex(),
                cells=[cell(b, t) for t in range(len(pieces[b]))],
                padding=tokens - len(pieces[b]),
            )
            for b, text in enumerate(texts)
        ],
    )
