"""Token kinds: which ids have a token, and which rows ordinary text can reach.

source -> Model -> [facts] -> findings -> Report
- ordinary text never produces four kinds of ids: ids without a token, special tokens, reserved tokens (`[unused7]`),
  and single bytes that are impossible in UTF-8 or always encoded as another token (byte fallback in Llama-2)
- the tokenizer is queried id by id, which works for every kind of tokenizer
- see also: findings about tokens (check_tokens.py)
Tested on real tokenizers in tests/inspection/test_report.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import zip_longest

import numpy as np
import numpy.typing as npt

from inlayer.errors import InlayerError
from inlayer.inspection.findings import Example
from inlayer.inspection.scan import Flags, Ids
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.base import is_reserved, text_of_bytes, token_bytes

MAX_TEXT = 32  # characters of a token that are shown
MAX_EXAMPLES = 5
IMPOSSIBLE_IN_UTF8 = frozenset(bytes([value]) for value in (0xC0, 0xC1, *range(0xF5, 0x100)))
MAX_IDS_TRIED = 2**18  # ids beyond the table; tokens with larger ids are counted but not listed

_SPECIAL = re.compile(rb"<\|.+\|>|<\xef\xbd\x9c.+\xef\xbd\x9c>", re.DOTALL)  # looks special: <|fim|> and <｜fim｜>


class TokenKind(IntEnum):
    """What the tokenizer uses an id for."""

    UNKNOWN = 0  # there is no tokenizer
    ORDINARY = 1
    SPECIAL = 2
    RESERVED = 3
    UNREACHABLE = 4  # a byte that text never produces
    MISSING = 5


REFERENCE_KINDS = (TokenKind.RESERVED, TokenKind.UNREACHABLE, TokenKind.MISSING)


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenKinds:
    """The kind of every id in `ids`, and the tokens whose ids are beyond the table."""

    tokenizer: Tokenizer | None
    rows: int
    ids: Ids
    kinds: npt.NDArray[np.uint8]
    out_of_range_ids: tuple[int, ...] = ()
    tokens_out_of_range: int = 0
    reference_kinds: tuple[TokenKind, ...] = REFERENCE_KINDS  # the kinds whose rows were never trained

    def first(self, count: int) -> TokenKinds:
        """Return the first few ids, if not all rows were read."""
        return replace(self, ids=self.ids[:count], kinds=self.kinds[:count])

    def has_kind(self, *kinds: TokenKind) -> Flags:
        """Flag the ids of these kinds."""
        return np.isin(self.kinds, [int(kind) for kind in kinds])

    @cached_property
    def last_token(self) -> int:
        """The last row that has a token, or -1."""
        known = self.ids[~self.has_kind(TokenKind.MISSING, TokenKind.UNKNOWN)]
        return int(known[-1]) if len(known) else -1

    def are_rare_bytes(self, flags: Flags) -> Flags:
        """Flagged ids that are single bytes other than printable ASCII, which a small corpus may not contain."""
        rare = np.zeros(len(self.ids), np.bool_)
        for index in np.flatnonzero(flags).tolist():
            token = token_bytes(self.tokenizer, int(self.ids[index]))
            rare[index] = token is not None and len(token) == 1 and not 0x20 <= token[0] < 0x7F
        return rare

    def text(self, token_id: int) -> str | None:
        """Return the text of a token, shortened; None without a token."""
        token = token_bytes(self.tokenizer, token_id)
        text = None if token is None else text_of_bytes(token)
        return text if text is None or len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"

    def examples(self, ids: Sequence[int], values: Sequence[float | None] = ()) -> tuple[Example, ...]:
        """Return the first few of these ids, with their tokens and values."""
        pairs = zip_longest(ids[:MAX_EXAMPLES], values[:MAX_EXAMPLES])
        return tuple(Example(id=token_id, text=self.text(token_id), value=value) for token_id, value in pairs)


def classify_ids(
    tokenizer: Tokenizer | None,
    rows: int,
    ids: Ids | None = None,
    used: Container[int] = frozenset(),
    padding_ids: frozenset[int] = frozenset(),
) -> TokenKinds:
    """Classify every id of a table, or those in `ids` (sorted).

    Reserved tokens in `used` and ordinary tokens in `padding_ids` count as special: their rows may be unusual.
    """
    row_ids = np.arange(rows) if ids is None else ids
    if tokenizer is None:
        kinds = np.full(len(row_ids), TokenKind.UNKNOWN, np.uint8)
        return TokenKinds(tokenizer=None, rows=rows, ids=row_ids, kinds=kinds)
    special = tokenizer.special_ids
    kinds = np.full(len(row_ids), TokenKind.ORDINARY, np.uint8)
    single_bytes: dict[bytes, list[int]] = defaultdict(list)
    for index, token_id in enumerate(row_ids.tolist()):
        token = token_bytes(tokenizer, token_id)
        if token is None:
            kinds[index] = TokenKind.MISSING
        elif is_reserved(token):
            kinds[index] = TokenKind.SPECIAL if token_id in used else TokenKind.RESERVED
        elif token_id in special or _SPECIAL.fullmatch(token):
            kinds[index] = TokenKind.SPECIAL
        elif len(token) == 1:
            single_bytes[token].append(index)
    for token, indices in single_bytes.items():
        for index in indices:
            alternatives = len(indices) > 1 and not _is_produced(tokenizer, token, int(row_ids[index]))
            if token in IMPOSSIBLE_IN_UTF8 or alternatives:
                kinds[index] = TokenKind.UNREACHABLE
    kinds[np.isin(row_ids, list(padding_ids)) & (kinds == TokenKind.ORDINARY)] = TokenKind.SPECIAL
    in_range = int((kinds != TokenKind.MISSING).sum()) if ids is None else rows
    outside, count = _out_of_range(tokenizer, rows, in_range)
    return TokenKinds(
        tokenizer=tokenizer, rows=rows, ids=row_ids, kinds=kinds, out_of_range_ids=outside, tokens_out_of_range=count
    )


def _is_produced(tokenizer: Tokenizer, token: bytes, token_id: int) -> bool:
    """Return whether text with this character produces the id, at the beginning or inside the text."""
    try:
        text = token.decode()
        return any(
            token_id in tokenizer.encode(before + text, add_special_tokens=False, parse_special=False)
            for before in ("", "a", "\u00ab")
        )
    except (UnicodeDecodeError, InlayerError):
        return False


def _out_of_range(tokenizer: Tokenizer, rows: int, in_range: int) -> tuple[tuple[int, ...], int]:
    """Return the token ids beyond the table, and how many there are; `in_range` tokens have a row."""
    outside = {token_id for token_id in tokenizer.special_ids if token_id >= rows}
    expected = max(0, tokenizer.get_vocab_size() - in_range)
    if not expected and not outside:
        return (), 0
    for token_id in range(rows, rows + MAX_IDS_TRIED):
        if len(outside) >= expected:
            break
        if token_bytes(tokenizer, token_id) is not None:
            outside.add(token_id)
    return tuple(sorted(outside)), max(len(outside), expected) if outside else 0
