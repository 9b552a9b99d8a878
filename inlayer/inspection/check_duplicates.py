"""Duplicate rows: which bit-equal rows are faults, and which only show that tokens were never trained.

source -> Model -> facts -> [findings] -> Report
- healthy models have duplicates: reserved tokens, padding, and a few words missing from the training text. In SmolLM2
  four tokens share the row of a special one; a small English model has one row for all bytes it never saw
- duplicates of an untrained row are a note as long as they are few. Ordinary tokens that share a row of their own are
  a warning, except for the last tokens of a vocabulary, which are its rarest (merges are learned by frequency)
- the same rules apply to the table and to a head
Tested with damaged checkpoints in tests/inspection/test_faults.py, on real models in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.rows import Rows
from inlayer.inspection.scan import Flags, RowStatistics
from inlayer.inspection.token_kinds import TokenKind

__all__ = ["MAX_UNKNOWN", "duplicate_findings", "shared_rows", "unknown_row_findings"]

MAX_SHARING_UNTRAINED = 0.01  # of the ordinary tokens
MAX_SHARING = 0.005  # of the ordinary tokens, if they are rare
RARE_FROM = 0.75  # of the vocabulary: later tokens are rare
MAX_UNKNOWN = 0.25  # of all rows in a table without a tokenizer; padding is less
MIN_BLOCK = 16  # rows of a repeated block; shorter ones may be tokens that were added alike


class SharedRows(NamedTuple):
    """Ordinary tokens that share their rows, either with an untrained row or among themselves."""

    flags: Flags
    with_untrained: bool
    is_fault: bool


def duplicate_findings(rows: Rows) -> Iterator[Finding]:
    """Duplicates in an embedding table."""
    scan, tokens, duplicates = rows.statistics, rows.tokens, rows.duplicates
    if rows.all_identical:
        message = "all rows are identical, so all tokens have the same embedding"
        yield Finding("error", "all-rows-identical", message, len(rows.usable_norms))
        return
    block = _repeated_block(scan, duplicates & tokens.are(TokenKind.ORDINARY, TokenKind.UNKNOWN))
    if block is not None:
        first, source, length = block
        message = f"rows {first:,} to {first + length - 1:,} repeat the rows from {source:,} on"
        in_block = duplicates & (scan.ids >= first) & (scan.ids < first + length)
        yield from rows.finding("error", "repeated-block", message, in_block)
        return
    for group in shared_rows(rows):
        other = "rows that look untrained" if group.with_untrained else "another row"
        message = f"{{rows}} the same values as {other}; the model cannot distinguish these tokens"
        severity: Severity = "warning" if group.is_fault else "note"
        yield from rows.finding(severity, "duplicate-rows", message, group.flags, scan.first_equal.astype(np.float64))
    unknown = duplicates & tokens.are(TokenKind.UNKNOWN)
    yield from unknown_row_findings(rows, unknown, "duplicate-rows", "the same values as another row")


def shared_rows(rows: Rows) -> tuple[SharedRows, SharedRows]:
    """Ordinary tokens with equal rows: those that share a row of their own, and those that share an untrained row."""
    scan, ordinary = rows.statistics, rows.tokens.are(TokenKind.ORDINARY)
    shared, count = scan.is_shared & ordinary, int(ordinary.sum())
    rare_bytes = rows.tokens.are_rare_bytes(shared)  # a byte that shares its row never occurred in training
    untrained = ~ordinary | rare_bytes | rows.undertrained.rows
    with_untrained = np.isin(scan.first_equal, scan.first_equal[untrained])
    own, borrowed = shared & ~with_untrained, shared & with_untrained
    return (
        SharedRows(own, False, _is_fault(rows, own, count)),
        SharedRows(borrowed, True, int((borrowed & ~rare_bytes).sum()) >= MAX_SHARING_UNTRAINED * count),
    )


def _is_fault(rows: Rows, shared: Flags, ordinary: int) -> bool:
    """Pairs are faults, as are groups with a common token, and any groups if there are many."""
    scan = rows.statistics
    _, group_of, sizes = np.unique(scan.first_equal, return_inverse=True, return_counts=True)
    pairs = shared & (sizes[group_of.reshape(-1)] == 2)
    common = shared & (scan.ids < RARE_FROM * rows.tokens.last_token)
    return bool(pairs.any() or common.any()) or int(shared.sum()) > MAX_SHARING * ordinary


def unknown_row_findings(rows: Rows, flags: Flags, code: str, what: str) -> Iterator[Finding]:
    """Unusual rows of a table without a tokenizer: they may be padding, unless there are too many."""
    if int(flags.sum()) > 1:  # a single one is the padding row
        severity: Severity = "warning" if flags.sum() > MAX_UNKNOWN * len(flags) else "note"
        message = f"{{rows}} {what}; without a tokenizer it is unknown whether text reaches them"
        yield from rows.finding(severity, code, message, flags, advice="Add the tokenizer and inspect again.")


def _repeated_block(scan: RowStatistics, duplicates: Flags) -> tuple[int, int, int] | None:
    """The longest run of consecutive rows that repeats another run: its first id, the other's first id, its length."""
    indices = np.flatnonzero(duplicates)
    if len(indices) < MIN_BLOCK:
        return None
    ids, sources = scan.ids[indices], scan.first_equal[indices]
    breaks = np.flatnonzero((np.diff(ids) != 1) | (np.diff(sources) != 1)) + 1
    starts, ends = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(ids)]))
    longest = int((ends - starts).argmax())
    length = int(ends[longest] - starts[longest])
    return (int(ids[starts[longest]]), int(sources[starts[longest]]), length) if length >= MIN_BLOCK else None
