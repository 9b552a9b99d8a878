"""Tokens and rows: ids beyond the table, gaps and reusable ids, and the special ids of the config.

source -> Model -> facts -> [findings] -> Report
- rows after the last token are normal: tables are padded to a multiple of 64 or 128
- a special token beyond the table that is named for image or audio input belongs to a larger sibling model (Gemma-3 1B)
- the config assigns ids to roles such as eos and pad; null and -1 both mean that a role has no token
- see also: classifying ids (token_kinds.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from inlayer.files import quote
from inlayer.inspection.findings import MAX_NUMBER, Finding, Severity
from inlayer.inspection.report import SpecialToken, VocabularyFacts
from inlayer.inspection.scan import RowStatistics
from inlayer.inspection.token_kinds import TokenKind, TokenKinds
from inlayer.render.numbers import count

MAX_SPECIAL = 64
MAX_TRAILING_ROWS = 0.2  # share of the table; published models stay below 2%
OTHER_MODALITY = re.compile(r"image|audio|video|vision|sound|speech", re.IGNORECASE)
MAX_IDS, MAX_ROLES = 32, 8
MAIN_ROLES = frozenset(("bos", "eos", "pad", "unk", "cls", "sep", "mask"))
SPECIAL_SPELLING = re.compile(r"[<\[].*[>\]]", re.DOTALL)  # <|im_end|>: special, even if its file does not mark it


def vocabulary_facts(
    tokens: TokenKinds, scan: RowStatistics, roles: Mapping[int, list[str]], config_vocab_size: int | None
) -> VocabularyFacts:
    """Count tokens, gaps and reusable ids; `roles`: the special ids of the config."""
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
        tokens=tokenizer.get_vocab_size(),
        trailing_rows=trailing,
        gaps=int((missing & (tokens.ids <= tokens.last_token)).sum()),
        tokens_out_of_range=tokens.tokens_out_of_range,
        reserved_tokens=int(reserved.sum()),
        reusable_ids=len(reusable),
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
    """Yield contradictions between the tokenizer and the table."""
    if tokens.tokenizer is None:
        message = "without a tokenizer, rows cannot be shown as text or classified as ordinary, special or unused"
        yield Finding("note", "tokenizer-missing", message)
        return
    outside, n_outside, trailing = tokens.out_of_range_ids, tokens.tokens_out_of_range, facts.trailing_rows or 0
    if n_outside:
        severity: Severity = "error"
        message, advice = f"{count(n_outside, 'token')} beyond the {tokens.rows:,} rows of the table", ""
        special = tokens.tokenizer.special_ids.intersection(outside)
        if len(special) == n_outside and all(OTHER_MODALITY.search(tokens.text(one) or "") for one in special):
            severity = "note"  # of a larger sibling
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
            "special-id-out-of-range": f"beyond the {tokens.rows:,} rows of the table",
            "special-id-without-token": "that have a row, but no token",
            "special-id-not-special": "that are ordinary tokens",
        }[code]
        ends_texts = "Text ends wherever this token occurs. Check that config.json and the tokenizer match."
        advice = ends_texts if (severity, code) == ("warning", "special-id-not-special") else ""
        named = ", ".join(f"{' and '.join(roles[token_id])} {token_id:,}" for token_id in ids)
        message = f"special ids of the config {what}: {named}"
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
