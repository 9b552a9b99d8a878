"""Computes token spans that never overlap from a library's offsets, for tokenizers that normalize text first.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- spans are in order and count UTF-8 bytes. Tokens that share a character split it if their own bytes add up to it;
  otherwise, a byte belongs to the first token that claims it. A `▁` added before the text covers nothing
- text that a normalizer removed belongs to no token (whitespace in BERT), unless it was composed into the character
  before it: combining marks and Hangul vowels belong to that character's token
- a pre-token extends from its first token to its last
Tested in tests/tokenizers/test_offsets.py and tests/tokenizers/test_pre_tokens.py.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

from inlayer.tokenizers.base import Token

Offsets = Sequence[tuple[int, int]]
SPACE_SYMBOL = "▁".encode()


def byte_offsets(text: str, offsets: Offsets) -> Offsets:
    """Convert character offsets in a text to UTF-8 byte offsets."""
    if text.isascii():
        return offsets
    starts = [0, *itertools.accumulate(len(character.encode()) for character in text)]
    return [(starts[start], starts[end]) for start, end in offsets]


def tokens_from_offsets(
    source: bytes, ids: Sequence[int], offsets: Offsets, own: Sequence[bytes], special_ids: frozenset[int]
) -> list[Token]:
    """Build one token per id; `offsets` are byte offsets in `source`, and `own` has each token's bytes by itself."""
    spans: list[tuple[int, int]] = []
    done = 0  # all bytes before this one are assigned
    for first, last in groups_of_tokens(offsets):
        begin = max(offsets[first][0], done)
        if spans and begin > done and is_composed(source[done:begin]):
            spans[-1] = (spans[-1][0], begin)
        reached = list(itertools.accumulate((stop for _, stop in offsets[first:last]), max, initial=begin))
        end = reached[-1]
        claimed = [after - before for before, after in itertools.pairwise(reached)]
        for length in matching_lengths(own[first:last], source[begin:end]) or claimed:
            spans.append((begin, begin + length))
            begin += length
        done = end
    if spans and is_composed(source[done:]):
        spans[-1] = (spans[-1][0], len(source))
    return [
        Token(token_id, source[start:end], (start, end), token_id in special_ids)
        for token_id, (start, end) in zip(ids, spans, strict=True)
    ]


def pre_tokens_from_tokens(tokens: Sequence[Token], indices: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the span of each pre-token that covers text, given the index of each token's pre-token."""
    spans = []
    for _, run in itertools.groupby(zip(indices, tokens, strict=True), key=lambda item: item[0]):
        covered = [token.span for _, token in run]
        spans.append((covered[0][0], covered[-1][1]))
    return [(start, end) for start, end in spans if start < end]


def groups_of_tokens(offsets: Offsets) -> list[tuple[int, int]]:
    """Return runs of tokens that share bytes. An empty span joins the next one, as in sentencepiece's byte tokens."""
    groups: list[tuple[int, int]] = []
    first, reach = 0, 0
    for index, (start, end) in enumerate(offsets):
        if index > first and start >= reach > offsets[first][0]:
            groups.append((first, index))
            first = index
        reach = max(reach, end)
    return [*groups, (first, len(offsets))] if offsets else []


def matching_lengths(own: Sequence[bytes], shared: bytes) -> list[int] | None:
    """Return each token's length if their own bytes, with `▁` for a space, add up to the shared bytes; else None."""
    spaced = [data.replace(SPACE_SYMBOL, b" ") for data in own]
    for candidate in (own, spaced, [spaced[0].removeprefix(b" "), *spaced[1:]]):  # the first `▁` may stand for nothing
        if b"".join(candidate) == shared:
            return [len(data) for data in candidate]
    return None


def is_composed(gap: bytes) -> bool:
    """Return whether all characters combine with the one before them: marks, and Hangul vowels and finals."""
    return all(
        unicodedata.category(character).startswith("M") or "\u1161" <= character <= "\u11ff"
        for character in gap.decode(errors="replace")
    )
