"""Special tokens: the ids that a config assigns to roles such as eos and pad.

config.json -> [roles, findings] -> Report
- an id may be invalid, outside the table, without a token, or an ordinary token
- null and -1 both mean that a role has no token
- elsewhere: norms of special tokens (check_vocabulary.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from inlayer.files import quoted
from inlayer.inspection.check_vocabulary import OTHER_MODALITY
from inlayer.inspection.findings import MAX_NUMBER, Finding, Severity
from inlayer.inspection.token_kinds import TokenKinds

__all__ = ["special_token_findings", "special_token_roles"]

MAX_IDS, MAX_ROLES = 32, 8
MAIN_ROLES = frozenset(("bos", "eos", "pad", "unk", "cls", "sep", "mask"))
SPECIAL_SPELLING = re.compile(r"'?[<\[].*[>\]]'?", re.DOTALL)  # <|im_end|>: special whatever its file says


def special_token_roles(config: Mapping[str, Any]) -> dict[int, list[str]]:
    """The special ids in a config, each with its roles: {2: ["eos", "pad"]}."""
    found: dict[int, list[str]] = {}
    for key, value in config.items():
        role = re.fullmatch(r"(\w{1,40})_token_ids?", key)
        for one in value if isinstance(value, list) else [value]:
            if role and type(one) is int and 0 <= one < MAX_NUMBER and (one in found or len(found) < MAX_IDS):
                roles = found.setdefault(one, [])
                if role.group(1) not in roles and len(roles) < MAX_ROLES:
                    roles.append(role.group(1))
    return found


def special_token_findings(
    tokens: TokenKinds, config: Mapping[str, Any], roles: Mapping[int, list[str]]
) -> Iterator[Finding]:
    """Special ids that are invalid, out of range, or not special tokens."""
    yield from _invalid_id_findings(config)
    outside = [token_id for token_id in roles if token_id >= tokens.rows]
    other = [one for one in outside if all(OTHER_MODALITY.search(role) for role in roles[one])]
    groups: dict[tuple[Severity, str], list[int]] = {
        ("error", "special-id-out-of-range"): [one for one in outside if one not in other],
        ("note", "special-id-out-of-range"): other,
    }
    for token_id in roles:
        if token_id < tokens.rows and (group := _classify(tokens, token_id, roles[token_id])):
            groups.setdefault(group, []).append(token_id)
    for (severity, code), ids in groups.items():
        if ids:
            one = len(ids) == 1
            what = {
                "special-id-out-of-range": f"outside the table of {tokens.rows:,} rows",
                "special-id-without-token": f"without a token, although {'it has a row' if one else 'they have rows'}",
                "special-id-not-special": "an ordinary token" if one else "ordinary tokens",
            }[code]
            ends_texts = "Text ends wherever this token occurs. Check that config.json and the tokenizer match."
            advice = ends_texts if (severity, code) == ("warning", "special-id-not-special") else ""
            examples = tokens.examples(ids) if not one or code == "special-id-not-special" else ()
            yield Finding(severity, code, f"the config's {_subject(roles, ids)} {what}", len(ids), examples, advice)


def _invalid_id_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    invalid = [
        f"{key} {quoted(value)}"
        for key in (f"{role}_token_id" for role in sorted(MAIN_ROLES))
        for value in (config.get(key),)
        if not all(
            one is None or (type(one) is int and -1 <= one < MAX_NUMBER)
            for one in (value if isinstance(value, list) else [value])
        )
    ]
    if invalid:
        kind = "a valid token id" if len(invalid) == 1 else "valid token ids"
        message = f"the config's {' and '.join(invalid)} {'is' if len(invalid) == 1 else 'are'} not {kind}"
        yield Finding("warning", "special-id-invalid", message, len(invalid))


def _classify(tokens: TokenKinds, token_id: int, roles: list[str]) -> tuple[Severity, str] | None:
    """Severity and code for an id within the table; None if it is a special token, or its role does not matter."""
    tokenizer, text = tokens.tokenizer, tokens.text(token_id)
    if tokenizer is None or not MAIN_ROLES.intersection(roles):
        return None
    if token_id in tokenizer.special_ids or SPECIAL_SPELLING.fullmatch(text or ""):
        return None
    if text is None:
        return "warning" if token_id < tokenizer.get_vocab_size() else "note", "special-id-without-token"
    return "warning" if "eos" in roles else "note", "special-id-not-special"


def _subject(roles: Mapping[int, list[str]], ids: list[int]) -> str:
    """Special ids as the subject of a sentence: "eos id 7 is", or the roles and the number of ids."""
    if len(ids) == 1:
        return f"{' and '.join(roles[ids[0]])} id {ids[0]:,} is"
    names = list(dict.fromkeys(role for one in ids for role in roles[one]))[:MAX_ROLES]
    return f"{' and '.join(names)} ids ({len(ids):,} in total) are"
