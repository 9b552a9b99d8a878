"""Which ids have a token, and what kind of token: the rows that text can reach, and those it cannot.

[checkpoint] files -> facts -> findings
- four kinds of rows that no ordinary text reaches: without a token, special, reserved (`[unused7]`), and single bytes
  that no UTF-8 text holds or that have a second token which is taken instead (byte fallback in LLaMA-2)
- a tokenizer is asked id by id: every kind of tokenizer can answer that
- not here: what is wrong with it (doctor/vocabulary.py)
Checked on real tokenizers in tests/inspection/test_report.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import numpy.typing as npt

from inlayer.errors import InlayerError
from inlayer.paths import printable
from inlayer.tokenizers import Tokenizer

__all__ = ["Kind", "Survey", "is_reserved", "survey_ids"]

Ids = npt.NDArray[np.int64]

LONGEST_TEXT = 32  # characters of a token that are shown
NEVER_IN_UTF8 = frozenset(bytes([value]) for value in (0xC0, 0xC1, *range(0xF5, 0x100)))
FARTHEST_LOOK, MAX_NAMED = 2**12, 64  # ids past the table that are tried, and found, before the rest is only counted

# [unused0] <unused7> <|reserved_special_token_3|> <reserved_106> <｜place▁holder▁no▁2｜> <|dummy_5|> <dummy32000>
# <|extra_0|> (but not T5's <extra_id_0>) [control_12] <SPECIAL_20> [PAD151700] (GGUF) [UNUSED_TOKEN_3] >>UNUSED_1<<
_RESERVED = re.compile(
    r"[<\[>]{1,2}[|｜]?"
    r"(unused|reserved|dummy|place.?holder|extra_(?!id)|control_|special_|spare|pad)[\w▁ -]*\d"
    r"[|｜]?[>\]<]{1,2}|madeupword\d+",
    re.IGNORECASE,
)
_MARKED = re.compile(rb"<\|.+\|>|<\xef\xbd\x9c.+\xef\xbd\x9c>", re.DOTALL)  # special by its look: <|fim|> and <｜fim｜>
_FIRST = frozenset((b"<", b"[", b">", b"m"))  # most tokens begin otherwise and need no pattern


class Kind(IntEnum):
    """What an id is to the tokenizer."""

    UNKNOWN = 0  # there is no tokenizer to ask
    ORDINARY = 1
    SPECIAL = 2
    RESERVED = 3
    UNREACHABLE = 4  # a byte that text never gives
    MISSING = 5


REFERENCES = (Kind.RESERVED, Kind.UNREACHABLE, Kind.MISSING)


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """The kind of every id in `ids`, and the tokens past the table."""

    tokenizer: Tokenizer | None
    rows: int
    ids: Ids
    kinds: npt.NDArray[np.uint8]
    past_table: tuple[int, ...]  # ids of tokens without a row: the first few
    tokens_past_table: int

    def are(self, *kinds: Kind) -> npt.NDArray[np.bool_]:
        return np.isin(self.kinds, [int(kind) for kind in kinds])

    @cached_property
    def last_token(self) -> int:
        """The last row that has a token; -1 where none has."""
        named = self.ids[~self.are(Kind.MISSING, Kind.UNKNOWN)]
        return int(named[-1]) if len(named) else -1

    def are_rare_bytes(self, flags: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which of the flagged ids are single bytes of no printable ASCII: a small corpus may hold none of them."""
        rare = np.zeros(len(self.ids), np.bool_)
        for place in np.flatnonzero(flags).tolist():
            token = token_of(self.tokenizer, int(self.ids[place]))
            rare[place] = token is not None and len(token) == 1 and not 0x20 <= token[0] < 0x7F
        return rare

    def text(self, token_id: int) -> str | None:
        """A token fit for a line of a terminal: escaped, cut, in quotes unless it is special; None without a token."""
        token = token_of(self.tokenizer, token_id)
        if token is None or self.tokenizer is None:
            return None
        text = printable(token.decode("utf-8", errors="backslashreplace").replace("\n", "\\n").replace("\t", "\\t"))
        text = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
        return text if token_id in self.tokenizer.special_ids else f"'{text}'"


def survey_ids(
    tokenizer: Tokenizer | None, rows: int, ids: Ids | None = None, named: Container[int] = frozenset()
) -> Survey:
    """Ask for every id of a table of `rows` rows, or for those in `ids` (sorted). Reserved `named` ones are in use."""
    wanted = np.arange(rows) if ids is None else ids
    if tokenizer is None:
        kinds = np.full(len(wanted), Kind.UNKNOWN, np.uint8)
        return Survey(tokenizer=None, rows=rows, ids=wanted, kinds=kinds, past_table=(), tokens_past_table=0)
    special = tokenizer.special_ids
    kinds = np.full(len(wanted), Kind.ORDINARY, np.uint8)
    single_bytes: dict[bytes, list[int]] = defaultdict(list)
    for place, token_id in enumerate(wanted.tolist()):
        token = token_of(tokenizer, token_id)
        if token is None:
            kinds[place] = Kind.MISSING
        elif is_reserved(token):
            kinds[place] = Kind.SPECIAL if token_id in named else Kind.RESERVED
        elif token_id in special or _MARKED.fullmatch(token):
            kinds[place] = Kind.SPECIAL
        elif len(token) == 1:
            single_bytes[token].append(place)
    for token, places in single_bytes.items():
        for place in places:
            if token in NEVER_IN_UTF8 or (len(places) > 1 and not _is_given(tokenizer, token, int(wanted[place]))):
                kinds[place] = Kind.UNREACHABLE
    known = int((kinds != Kind.MISSING).sum()) if ids is None else None
    past, count = _past_table(tokenizer, rows, known)
    return Survey(tokenizer=tokenizer, rows=rows, ids=wanted, kinds=kinds, past_table=past, tokens_past_table=count)


def token_of(tokenizer: Tokenizer | None, token_id: int) -> bytes | None:
    """The bytes of a token; None where the id has none."""
    try:
        return None if tokenizer is None else tokenizer.token_bytes(token_id)
    except InlayerError:
        return None


def is_reserved(token: bytes) -> bool:
    """Is this a placeholder, by its name?

    >>> is_reserved(b"<|reserved_special_token_3|>"), is_reserved(b"reserved"), is_reserved(b"<extra_id_0>")
    (True, False, False)
    """
    return token[:1] in _FIRST and _RESERVED.fullmatch(token.decode("utf-8", errors="replace")) is not None


def _is_given(tokenizer: Tokenizer, token: bytes, token_id: int) -> bool:
    """Does a text with this one character give this id, at its beginning or within?"""
    try:
        text = token.decode()
        return any(
            token_id in tokenizer.encode(before + text, add_special_tokens=False, parse_special=False)
            for before in ("", "a", "\u00ab")
        )
    except (UnicodeDecodeError, InlayerError):
        return False


def _past_table(tokenizer: Tokenizer, rows: int, known: int | None) -> tuple[tuple[int, ...], int]:
    """The first few ids past the table, and how many there are; `known` tokens have a row, None if not counted."""
    special = [token_id for token_id in tokenizer.special_ids if token_id >= rows]
    expected = max(0, tokenizer.get_vocab_size() - (rows if known is None else known))
    if not expected and not special:
        return (), 0
    found: set[int] = set(special)
    for token_id in range(rows, rows + FARTHEST_LOOK):
        if len(found) >= min(expected, MAX_NAMED):
            break
        if token_of(tokenizer, token_id) is not None:
            found.add(token_id)
    return tuple(sorted(found)), max(len(found), expected) if found else 0
