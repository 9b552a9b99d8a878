"""From a library's offsets to spans that never overlap, where a normalizer stands between text and tokens.

[text] -> ids -> rows -> (+ positions) -> hidden states -> head
- spans are in order and count UTF-8 bytes. Tokens that share a character (its bytes cut apart) split it exactly where
  their own bytes add up to the source; where they do not, the first to claim a byte has it. A block put before the
  text (`▁`) covers nothing of it
- what a normalizer dropped belongs to no piece (BERT's white space), except what it composed into the character
  before: combining marks and Hangul vowels belong to that character's piece
- the span of a split reaches from its first piece to its last
- not here: byte-level tokenizers without a normalizer, whose bytes simply follow one another (base.py)
Checked in tests/tokenizers/test_pieces.py and tests/tokenizers/test_splits.py.
"""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Sequence

from inlayer.tokenizers.base import Token

__all__ = ["in_bytes", "pieces_from_offsets", "splits_from_pieces"]

Offsets = Sequence[tuple[int, int]]
BLOCK = "▁".encode()


def in_bytes(text: str, offsets: Offsets) -> Offsets:
    """Offsets that count characters of a text, counted in its UTF-8 bytes instead."""
    if text.isascii():
        return offsets
    positions = [0]
    for character in text:
        positions.append(positions[-1] + len(character.encode()))
    return [(positions[start], positions[end]) for start, end in offsets]


def pieces_from_offsets(
    source: bytes,
    ids: Sequence[int],
    offsets: Offsets,
    token_bytes: Callable[[int], bytes],
    special_ids: frozenset[int],
) -> list[Token]:
    """One piece per id; `offsets` count bytes of `source`."""
    ends: list[tuple[int, int]] = []
    done = 0  # bytes that already belong to a piece, or to none
    for first, last in groups(offsets):
        begin = max(offsets[first][0], done)
        if ends and begin > done and composes(source[done:begin]):
            ends[-1] = (ends[-1][0], begin)
        end = max(begin, *(stop for _, stop in offsets[first:last]))
        own = [token_bytes(token_id) for token_id in ids[first:last]]
        claims = fitting(own, source[begin:end]) or claimed(begin, offsets[first:last])
        for length in claims:
            ends.append((begin, begin + length))
            begin += length
        done = end
    if ends and composes(source[done:]):
        ends[-1] = (ends[-1][0], len(source))
    return [
        Token(token_id, source[start:end], (start, end), token_id in special_ids)
        for token_id, (start, end) in zip(ids, ends, strict=True)
    ]


def splits_from_pieces(pieces: Sequence[Token], words: Sequence[int | None]) -> list[tuple[int, int]]:
    """The span of each split, given which one each piece belongs to. One that covers nothing of the text (a space put
    before it, the second half of a character taken apart) is left out.
    """
    spans = []
    for _, run in itertools.groupby(zip(words, pieces, strict=True), key=lambda item: item[0]):
        covered = [piece.span for _, piece in run]
        spans.append((covered[0][0], covered[-1][1]))
    return [(start, end) for start, end in spans if start < end]


def groups(offsets: Offsets) -> list[tuple[int, int]]:
    """Runs of tokens that share bytes, as (first, one past the last). A token of no width joins the one after it:
    sentencepiece gives the bytes of a character to the last of its byte tokens.
    """
    found: list[tuple[int, int]] = []
    first, reach = 0, 0
    for index, (start, end) in enumerate(offsets):
        if index > first and start >= reach > offsets[first][0]:
            found.append((first, index))
            first = index
        reach = max(reach, end)
    if offsets:
        found.append((first, len(offsets)))
    return found


def fitting(own: list[bytes], shared: bytes) -> list[int] | None:
    """How many bytes each token gets where their own add up to those they share; None where they do not.

    A block stands for a space, and the first one of a text for none: it is put there before the text is cut.
    """
    spaced = [data.replace(BLOCK, b" ") for data in own]
    for tried in (own, spaced, [spaced[0].removeprefix(b" "), *spaced[1:]]):
        if b"".join(tried) == shared:
            return [len(data) for data in tried]
    return None


def claimed(begin: int, offsets: Offsets) -> list[int]:
    """How many bytes each token gets when each takes what it reaches beyond the ones before it."""
    lengths = []
    for _, end in offsets:
        lengths.append(max(0, end - begin))
        begin = max(begin, end)
    return lengths


def composes(gap: bytes) -> bool:
    """Only characters that are composed into the one before them: combining marks, vowels and finals of Hangul."""
    return all(
        unicodedata.category(character).startswith("M") or "\u1161" <= character <= "\u11ff"
        for character in gap.decode(errors="replace")
    )
