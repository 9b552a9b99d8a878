"""Steps 1 to 3 of a walk: text -> bytes -> pre-tokens -> ids.

[text -> ids] -> rows -> (+ positions) -> hidden states -> head
- everything comes from the tokenizer: its tokens, pre-token spans and merges
- a token is labeled by its text only if its bytes are whole characters, otherwise by its bytes
- elsewhere: a token outside of any text (tokenizers/base.py)
Tested in tests/trace/test_tokenization.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from inlayer.tokenizers import Token
from inlayer.trace.facts import Character, PreToken, Span, TextTrace

if TYPE_CHECKING:
    from inlayer.trace.pipeline import Pipeline

__all__ = ["Tokenization", "label_of", "tokenize"]

MAX_MERGED_TOKENS = 256  # the merges of a longer pre-token are not recorded


class Tokenization(NamedTuple):
    """A tokenized text: its trace, whose `tokens` are still empty, and its tokens."""

    trace: TextTrace
    tokens: list[Token]


def tokenize(text: str, pipeline: Pipeline, max_tokens: int) -> Tokenization:
    """Tokenize a text; characters and pre-tokens are recorded for its first `max_tokens` tokens."""
    tokenizer = pipeline.tokenizer
    assert tokenizer is not None
    tokens, spans = tokenizer.analyze(text)
    source = text.encode()
    end = len(source)
    if len(tokens) > max_tokens:
        end = max((token.span[1] for token in tokens[:max_tokens]), default=0)
    while end < len(source) and source[end] & 0xC0 == 0x80:  # not in the middle of a character
        end += 1
    beginning = source[:end].decode()
    trace = TextTrace(
        text=beginning,
        n_characters=len(text),
        n_bytes=len(source),
        characters=[Character(text=character, bytes=character.encode().hex()) for character in beginning],
        pre_tokens=None if spans is None else _pre_tokens(source, spans, tokens, max_tokens, pipeline),
        n_pre_tokens=0 if spans is None else len(spans),
        n_tokens=len(tokens),
        n_padding=0,
        tokens=[],
    )
    return Tokenization(trace, tokens)


def _pre_tokens(
    source: bytes, spans: Sequence[Span], tokens: Sequence[Token], max_tokens: int, pipeline: Pipeline
) -> list[PreToken]:
    """Assign tokens to the pre-tokens that start within the first `max_tokens` tokens."""
    # Tokens that the tokenizer added around the text (BOS, EOS) cover no bytes and belong to no pre-token.
    body = [place for place, token in enumerate(tokens) if token.bytes or not token.special]
    place, stop = (body[0], body[-1] + 1) if body else (0, 0)
    found = []
    for start, end in spans:
        while place < stop and tokens[place].span[0] < start:
            place += 1
        past = place
        while past < stop and tokens[past].span[1] <= end:
            past += 1
        if place >= max_tokens:
            break
        ids = tuple(token.id for token in tokens[place:past])
        found.append(
            PreToken(
                span=(start, end),
                bytes=source[start:end].hex(),
                tokens=(place, min(past, max_tokens)),
                merges=pipeline.merges(ids) if len(ids) <= MAX_MERGED_TOKENS else None,
            )
        )
        place = past
    return found


def label_of(token: Token, name: str) -> str:
    """Label a token by its text, by its bytes if they are not whole characters, or by name if it is special."""
    if token.special or not token.bytes:
        return name
    try:
        return token.bytes.decode()
    except UnicodeDecodeError:
        return token.bytes.hex(" ")
