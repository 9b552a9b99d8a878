"""Steps 1 to 3 of a walk: text -> bytes -> pieces -> ids.

[text -> ids] -> rows -> (+ positions) -> hidden states -> head
- all of it is what the tokenizer says of itself: `pieces`, `splits`, `merges`
- a piece is shown as text only where its bytes are whole characters; else by its bytes
- not here: the rows of the ids (trace/run.py)
Checked in tests/trace/test_tokenization.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inlayer.tokenizers import Token
from inlayer.trace.facts import Character, Span, Split
from inlayer.trace.parts import Parts

__all__ = ["Reading", "read"]

MAX_SPLIT = 256  # tokens of a split whose merges are told


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One text, read: what of it is shown, and how much there is of it."""

    text: str
    n_characters: int
    n_bytes: int
    characters: list[Character]
    splits: list[Split] | None
    n_splits: int
    tokens: list[Token]


def read(text: str, parts: Parts, tokens: int) -> Reading:
    """Read a text; characters and splits are told of its first `tokens` tokens."""
    tokenizer = parts.tokenizer
    assert tokenizer is not None
    pieces = tokenizer.tokens(text)
    source = text.encode()
    shown = max((piece.span[1] for piece in pieces[:tokens]), default=0)
    if len(pieces) <= tokens:
        shown = len(source)
    # An end within a character is moved behind it.
    while shown < len(source) and source[shown] & 0xC0 == 0x80:
        shown += 1
    beginning = source[:shown].decode()
    spans = tokenizer.pre_tokens(text)
    return Reading(
        text=beginning,
        n_characters=len(text),
        n_bytes=len(source),
        characters=[Character(text=character, bytes=character.encode().hex()) for character in beginning],
        splits=None if spans is None else _splits(text, spans, pieces, tokens, parts),
        n_splits=0 if spans is None else len(spans),
        tokens=pieces,
    )


def _splits(text: str, spans: Sequence[Span], pieces: Sequence[Token], tokens: int, parts: Parts) -> list[Split]:
    """The splits that begin within the first `tokens` tokens, each with its own."""
    assert parts.tokenizer is not None
    source, body = text.encode(), _body(pieces, parts.tokenizer.encode(text, add_special_tokens=False))
    found, place = [], body.start
    for start, end in spans:
        while place < body.stop and pieces[place].span[0] < start:
            place += 1
        past = place
        while past < body.stop and pieces[past].span[1] <= end:
            past += 1
        if place >= tokens:
            break
        ids = tuple(piece.id for piece in pieces[place:past])
        found.append(
            Split(
                span=(start, end),
                bytes=source[start:end].hex(),
                cells=(place, min(past, tokens)),
                merges=parts.merges(ids) if len(ids) <= MAX_SPLIT else None,
            )
        )
        place = past
    return found


def _body(pieces: Sequence[Token], bare: list[int]) -> range:
    """Which of the pieces are the text's own: the tokenizer may have added others before and behind."""
    ids = [piece.id for piece in pieces]
    for start in range(len(ids) - len(bare) + 1):
        if ids[start : start + len(bare)] == bare:
            return range(start, start + len(bare))
    return range(len(pieces))
