"""Tokens: the use of each id, the rows that ordinary text can reach, and the config's special ids.

source -> Model -> [facts -> findings] -> Report
- ordinary text never produces four kinds of ids: ids without a token, special tokens, reserved tokens (`[unused7]`),
  and single bytes that are impossible in UTF-8 or always encoded as another token (byte fallback in Llama-2)
- the tokenizer is queried id by id, which works for every kind of tokenizer
- rows after the last token are normal: tables are often padded to a multiple of 64 or 128
- a special token for image or audio input whose id is beyond the table belongs to a larger sibling model (Gemma-3 1B)
- the config assigns ids to roles such as eos and pad; null and -1 both mean that a role has no token
Tested on real tokenizers in tests/inspection/test_report.py, and with damaged checkpoints in
tests/inspection/test_faults.py.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np

from inlayer.errors import InlayerError
from inlayer.files import quote
from inlayer.inspection.findings import MAX_NUMBER, Example, Finding, Severity
from inlayer.inspection.report import SpecialToken, VocabularyFacts
from inlayer.inspection.scan import RowStatistics
from inlayer.render.numbers import pluralize
from inlayer.shapes import Bytes, Ids, Mask
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.base import is_reserved, text_of_bytes, token_bytes

MAX_SHOWN_CHARACTERS = 32  # characters of a token that are shown
MAX_EXAMPLES = 5
IMPOSSIBLE_IN_UTF8 = frozenset(bytes([value]) for value in (0xC0, 0xC1, *range(0xF5, 0x100)))
MAX_IDS_TRIED = 2**18  # ids beyond the table; tokens with larger ids are counted but not listed

_SPECIAL = re.compile(rb"<\|.+\|>|<\xef\xbd\x9c.+\xef\xbd\x9c>", re.DOTALL)  # looks special: <|fim|> and <｜fim｜>
MAX_SPECIAL = 64
MAX_TRAILING_ROWS = 0.2  # share of the table; published models stay below 2%
OTHER_MODALITY = re.compile(r"image|audio|video|vision|sound|speech", re.IGNORECASE)
MAX_IDS, MAX_ROLES = 32, 8
MAIN_ROLES = frozenset(("bos", "eos", "pad", "unk", "cls", "sep", "mask"))
SPECIAL_SPELLING = re.compile(r"[<\[].*[>\]]", re.DOTALL)  # special, even if the file does not mark it: <|im_end|>


class TokenKind(IntEnum):
    """The kind of token that an id stands for."""

    UNKNOWN = 0  # there is no tokenizer
    ORDINARY = 1
    SPECIAL = 2
    RESERVED = 3
    UNREACHABLE = 4  # a byte that text never produces
    MISSING = 5


REFERENCE_KINDS = (TokenKind.RESERVED, TokenKind.UNREACHABLE, TokenKind.MISSING)


@dataclass(frozen=True, eq=False)
class TokenKinds:
    """The kind of every id in `ids`, and the tokens whose ids are beyond the table."""

    tokenizer: Tokenizer | None
    rows: int
    ids: Ids
    kinds: Bytes
    out_of_range_ids: tuple[int, ...] = ()
    n_out_of_range: int = 0
    reference_kinds: tuple[TokenKind, ...] = REFERENCE_KINDS  # the kinds whose rows were never trained

    def truncate(self, n_ids: int) -> TokenKinds:
        """Keep only the first `n_ids` ids, if not all rows were read."""
        return replace(self, ids=self.ids[:n_ids], kinds=self.kinds[:n_ids])

    def has_kind(self, *kinds: TokenKind) -> Mask:
        """Flag the ids of these kinds."""
        return np.isin(self.kinds, [int(kind) for kind in kinds])

    @cached_property
    def last_token(self) -> int:
        """The last row that has a token, or -1."""
        known = self.ids[~self.has_kind(TokenKind.MISSING, TokenKind.UNKNOWN)]
        return int(known[-1]) if len(known) else -1

    def are_rare_bytes(self, flags: Mask) -> Mask:
        """Flagged ids that are single bytes other than printable ASCII, which a small corpus may not contain."""
        rare = np.zeros(len(self.ids), np.bool_)
        for index in np.flatnonzero(flags).tolist():
            token = token_bytes(self.tokenizer, int(self.ids[index]))
            rare[index] = token is not None and len(token) == 1 and not 0x20 <= token[0] < 0x7F
        return rare

    def text(self, token_id: int) -> str | None:
        """Return the text of a token, shortened; None if the id has no token."""
        token = token_bytes(self.tokenizer, token_id)
        text = None if token is None else text_of_bytes(token)
        return text if text is None or len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"

    def examples(self, ids: Sequence[int], values: Sequence[float | None] = ()) -> tuple[Example, ...]:
        """Return the first few of these ids, with their tokens and values."""
        pairs = zip_longest(ids[:MAX_EXAMPLES], values[:MAX_EXAMPLES])
        return tuple(Example(id=token_id, text=self.text(token_id), value=value) for token_id, value in pairs)


def classify_ids(
    tokenizer: Tokenizer | None,
    rows: int,
    ids: Ids | None = None,
    used: Container[int] = frozenset(),
    padding_ids: Set[int] = frozenset(),
) -> TokenKinds:
    """Classify every id of a table, or those in `ids` (sorted).

    Reserved tokens in `used` and ordinary tokens in `padding_ids` count as special: their rows may be unusual.
    """
    row_ids = np.arange(rows) if ids is None else ids
    kinds = np.full(len(row_ids), TokenKind.UNKNOWN if tokenizer is None else TokenKind.ORDINARY, np.uint8)
    if tokenizer is None:
        return TokenKinds(tokenizer, rows, row_ids, kinds)
    special = tokenizer.special_ids
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
            unused = len(indices) > 1 and not _is_produced(tokenizer, token, int(row_ids[index]))
            if token in IMPOSSIBLE_IN_UTF8 or unused:
                kinds[index] = TokenKind.UNREACHABLE
    kinds[np.isin(row_ids, list(padding_ids)) & (kinds == TokenKind.ORDINARY)] = TokenKind.SPECIAL
    in_range = int((kinds != TokenKind.MISSING).sum()) if ids is None else rows
    return TokenKinds(tokenizer, rows, row_ids, kinds, *_out_of_range(tokenizer, rows, in_range))


def _is_produced(tokenizer: Tokenizer, token: bytes, token_id: int) -> bool:
    """Return whether text that contains this character, at the start or later, produces the id."""
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


# ---- facts and findings


def vocabulary_facts(
    tokens: TokenKinds, scan: RowStatistics, roles: Mapping[int, list[str]], config_vocab_size: int | None
) -> VocabularyFacts:
    """Count tokens, gaps, and reusable ids; `roles` are the config's special ids."""
    tokenizer = tokens.tokenizer
    missing, reserved = tokens.has_kind(TokenKind.MISSING), tokens.has_kind(TokenKind.RESERVED)
    reusable = tokens.ids[missing | reserved].tolist()
    facts = VocabularyFacts(
        config_vocab_size=config_vocab_size,
        table_rows=tokens.rows,
        rows_checked=len(tokens.ids),
        special_tokens=tuple(_special_tokens(tokens, scan, roles)),
    )
    if tokenizer is None:
        return facts
    trailing = tokens.rows - 1 - tokens.last_token
    if len(tokens.ids) < tokens.rows:  # a sample, whose last token is unknown; ids are assumed to have no gaps
        trailing = max(0, tokens.rows - tokenizer.get_vocab_size())
    return replace(
        facts,
        tokenizer=type(tokenizer).__name__.removesuffix("Tokenizer"),
        n_tokens=tokenizer.get_vocab_size(),
        n_trailing_rows=trailing,
        n_gaps=int((missing & (tokens.ids <= tokens.last_token)).sum()),
        n_tokens_out_of_range=tokens.n_out_of_range,
        n_reserved_tokens=int(reserved.sum()),
        n_reusable_ids=len(reusable),
        reusable_examples=tokens.examples(reusable),
    )


def _special_tokens(tokens: TokenKinds, scan: RowStatistics, roles: Mapping[int, list[str]]) -> Iterator[SpecialToken]:
    special = tokens.tokenizer.special_ids if tokens.tokenizer is not None else frozenset[int]()
    others = sorted(special - set(roles) - set(tokens.ids[tokens.has_kind(TokenKind.RESERVED)].tolist()))
    for token_id in [*sorted(roles), *others[:MAX_SPECIAL]]:
        norms = scan.norms[scan.ids == token_id].tolist()
        text, role = tokens.text(token_id), tuple(roles.get(token_id, ()))
        yield SpecialToken(id=token_id, text=text, roles=role, norm=norms[0] if norms else None)


def vocabulary_findings(tokens: TokenKinds, facts: VocabularyFacts) -> Iterator[Finding]:
    """Yield a finding for each contradiction between the tokenizer and the table."""
    if tokens.tokenizer is None:
        message = "without a tokenizer, rows cannot be shown as text or classified as ordinary, special, or unused"
        yield Finding("note", "tokenizer-missing", message)
        return
    outside, n_outside, trailing = tokens.out_of_range_ids, tokens.n_out_of_range, facts.n_trailing_rows or 0
    if n_outside:
        severity: Severity = "error"
        message, advice = f"{pluralize(n_outside, 'token')} beyond the {tokens.rows:,} rows of the table", ""
        special = tokens.tokenizer.special_ids.intersection(outside)
        if len(special) == n_outside and all(OTHER_MODALITY.search(tokens.text(one) or "") for one in special):
            severity = "note"  # the tokens belong to a larger sibling model
            message += "; named for image or audio input, which this model does not accept"
            advice = "These tokens never reach this model."
        examples = tokens.examples(outside)
        yield Finding(severity, "token-ids-out-of-range", message, n_outside, outside, examples, advice)
    if trailing > MAX_TRAILING_ROWS * tokens.rows:
        message = f"the last {trailing:,} of {tokens.rows:,} rows have no token, more than padding can explain"
        ids = tuple(range(tokens.rows - trailing, tokens.rows))
        yield Finding("warning", "tokenizer-too-small", message, ids=ids)


# ---- special ids of the config


def special_token_roles(config: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return the special ids in a config, each with its roles: {2: ["eos", "pad"]}."""
    roles: dict[int, list[str]] = {}
    for key, value in config.items():
        role = re.fullmatch(r"(\w{1,40})_token_ids?", key)
        for item in value if isinstance(value, list) else [value]:
            if role and type(item) is int and 0 <= item < MAX_NUMBER and (item in roles or len(roles) < MAX_IDS):
                names = roles.setdefault(item, [])
                if role.group(1) not in names and len(names) < MAX_ROLES:
                    names.append(role.group(1))
    return roles


def special_token_findings(
    tokens: TokenKinds, config: Mapping[str, Any], roles: Mapping[int, list[str]]
) -> Iterator[Finding]:
    """Yield special ids that are invalid, out of range, or not special tokens."""
    fields = {f"{role}_token_id": config.get(f"{role}_token_id") for role in sorted(MAIN_ROLES)}
    invalid = [f"{name} {quote(value)}" for name, value in fields.items() if not _are_valid_ids(value)]
    if invalid:
        message = f"not a valid token id in the config: {', '.join(invalid)}"
        yield Finding("warning", "special-id-invalid", message, len(invalid))
    groups: dict[tuple[Severity, str], list[int]] = {}
    for token_id in roles:
        if group := _classify(tokens, token_id, roles[token_id]):
            groups.setdefault(group, []).append(token_id)
    for (severity, code), ids in groups.items():
        what = {
            "special-id-out-of-range": f"are beyond the table's {tokens.rows:,} rows",
            "special-id-without-token": "have a row, but no token",
            "special-id-not-special": "are ordinary tokens",
        }[code]
        ends_texts = "Text ends wherever this token occurs. Check that config.json and the tokenizer match."
        advice = ends_texts if (severity, code) == ("warning", "special-id-not-special") else ""
        named = ", ".join(f"{' and '.join(roles[token_id])} {token_id}" for token_id in ids)
        message = f"the config's special ids {what}: {named}"
        yield Finding(severity, code, message, ids=tuple(ids), examples=tokens.examples(ids), advice=advice)


def _are_valid_ids(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(item is None or (type(item) is int and -1 <= item < MAX_NUMBER) for item in items)


def _classify(tokens: TokenKinds, token_id: int, roles: list[str]) -> tuple[Severity, str] | None:
    """Return severity and code for a special id; None if it is a special token, or if its role does not matter."""
    if token_id >= tokens.rows:
        other = all(OTHER_MODALITY.search(role) for role in roles)
        return "note" if other else "error", "special-id-out-of-range"
    tokenizer, text = tokens.tokenizer, tokens.text(token_id)
    if tokenizer is None or not MAIN_ROLES.intersection(roles):
        return None
    if token_id in tokenizer.special_ids or SPECIAL_SPELLING.fullmatch(text or ""):
        return None
    if text is None:
        return "warning" if token_id < tokenizer.get_vocab_size() else "note", "special-id-without-token"
    return "warning" if "eos" in roles else "note", "special-id-not-special"
