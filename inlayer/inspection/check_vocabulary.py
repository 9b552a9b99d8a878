"""Vocabulary: tokens compared with rows, such as ids beyond the table, gaps and reusable ids.

source -> Model -> facts -> [findings] -> Report
- rows after the last token are normal: tables are padded to a multiple of 64 or 128
- a special token beyond the table that is named after images or audio belongs to a larger sibling model (Gemma-3 1B)
- elsewhere: classifying ids (token_kinds.py), special ids in the config (check_special_tokens.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from inlayer.inspection.findings import Finding
from inlayer.inspection.report import SpecialToken, VocabularyFacts
from inlayer.inspection.scan import RowStatistics
from inlayer.inspection.token_kinds import TokenKind, TokenKinds

__all__ = ["OTHER_MODALITY", "vocabulary_facts", "vocabulary_findings"]

MAX_SPECIAL = 64
MAX_TRAILING_ROWS = 0.2  # of the table; published models stay below 2 %
OTHER_MODALITY = re.compile(r"image|audio|video|vision|sound|speech", re.IGNORECASE)


def vocabulary_facts(
    tokens: TokenKinds, scan: RowStatistics, roles: Mapping[int, list[str]], config_vocab_size: int | None
) -> VocabularyFacts:
    """Count tokens, gaps and reusable ids; `roles` are the special ids of the config."""
    tokenizer = tokens.tokenizer
    missing, reserved = tokens.are(TokenKind.MISSING), tokens.are(TokenKind.RESERVED)
    reusable = tokens.ids[missing | reserved]
    known = tokenizer is not None
    return VocabularyFacts(
        tokenizer=type(tokenizer).__name__.removesuffix("Tokenizer") if known else None,
        tokens=tokenizer.get_vocab_size() if tokenizer is not None else None,
        config_vocab_size=config_vocab_size,
        table_rows=tokens.rows,
        rows_checked=len(tokens.ids),
        trailing_rows=_trailing_rows(tokens),
        gaps=int((missing & (tokens.ids <= tokens.last_token)).sum()) if known else None,
        tokens_out_of_range=tokens.tokens_out_of_range if known else None,
        reserved_tokens=int(reserved.sum()) if known else None,
        reusable_ids=len(reusable) if known else None,
        reusable_examples=tokens.examples(reusable.tolist()),
        special_tokens=tuple(_special_tokens(tokens, scan, roles)),
    )


def _trailing_rows(tokens: TokenKinds) -> int | None:
    """Rows after the last token. In a sample the last token is unknown, so ids are assumed to have no gaps."""
    if tokens.tokenizer is None:
        return None
    if len(tokens.ids) == tokens.rows:
        return tokens.rows - 1 - tokens.last_token
    return max(0, tokens.rows - tokens.tokenizer.get_vocab_size())


def _special_tokens(tokens: TokenKinds, scan: RowStatistics, roles: Mapping[int, list[str]]) -> Iterator[SpecialToken]:
    special = tokens.tokenizer.special_ids if tokens.tokenizer is not None else frozenset[int]()
    others = sorted(special - set(roles) - set(tokens.ids[tokens.are(TokenKind.RESERVED)].tolist()))
    for token_id in [*sorted(roles), *others[:MAX_SPECIAL]]:
        index = np.flatnonzero(scan.ids == token_id)
        yield SpecialToken(
            id=token_id,
            text=tokens.text(token_id),
            roles=tuple(roles.get(token_id, ())),
            norm=float(scan.norms[index[0]]) if len(index) else None,
        )


def vocabulary_findings(tokens: TokenKinds, facts: VocabularyFacts) -> Iterator[Finding]:
    """Contradictions between the tokenizer and the table."""
    if tokens.tokenizer is None:
        message = "without a tokenizer, rows cannot be shown as text or told apart by use"
        yield Finding("note", "tokenizer-missing", message)
        return
    count, trailing = tokens.tokens_out_of_range, facts.trailing_rows or 0
    if count:
        special = tokens.tokenizer.special_ids
        sibling = len(tokens.out_of_range_ids) == count and all(
            token_id in special and OTHER_MODALITY.search(tokens.text(token_id) or "")
            for token_id in tokens.out_of_range_ids
        )
        message = f"{count:,} {'token has an id' if count == 1 else 'tokens have ids'} beyond the {tokens.rows:,} rows "
        message += "of the table" + ("; named after images or audio, which this model does not accept" * sibling)
        yield Finding(
            "note" if sibling else "error",
            "token-ids-out-of-range",
            message,
            count,
            tokens.examples(tokens.out_of_range_ids),
            "These tokens never reach this model." if sibling else "",
        )
    if trailing > MAX_TRAILING_ROWS * tokens.rows:
        message = f"the last {trailing:,} of {tokens.rows:,} rows have no token, more than padding explains"
        yield Finding("warning", "tokenizer-too-small", message, trailing)
