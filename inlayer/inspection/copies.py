"""Rows that equal another, bit for bit: which of them are slips, and which only show that nothing trained them.

[checkpoint] files -> facts -> [findings]
- healthy models have such rows: reserved tokens, padding, and a few words that no text of the training held. SmolLM2
  has four tokens that share the row of a special one, a small English model one row for the bytes it never saw
- so copies of a row that nothing trained are a note while they are few. Ordinary tokens that share a row of their own
  are a warning, except the last of the vocabulary, which are its rarest: merges are learned the commonest first
- the same rules serve the table and the head
Checked with damaged copies in tests/inspection/test_faults.py, on real models in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlayer.inspection.health import RowStatistics
from inlayer.inspection.report import Finding
from inlayer.inspection.rows import Rows
from inlayer.inspection.survey import Kind

__all__ = ["MAX_UNEXPLAINED", "Shared", "copy_findings", "rows_have", "shared_rows", "unexplained"]

Flags = npt.NDArray[np.bool_]

MAX_UNTRAINED = 0.01  # of the ordinary tokens may share a row that nothing trained
MAX_ALIKE = 0.005  # of the ordinary tokens may share rows of their own, if they are rare ones
LATE = 0.75  # of the vocabulary: tokens past it are rare
MAX_UNEXPLAINED = 0.25  # of all rows, where there is no tokenizer: padding is less
LONGEST_CHANCE = 16  # rows of a block that repeats another: fewer may be tokens added alike


@dataclass(frozen=True, eq=False)
class Shared:
    """Ordinary tokens that share their rows: with one that nothing trained if `untrained`, else among themselves."""

    rows: Flags
    untrained: bool
    alarming: bool


def copy_findings(rows: Rows) -> Iterator[Finding]:
    """Copies in a table of tokens."""
    seen, survey, copied = rows.statistics, rows.survey, rows.copied
    usable = len(rows.usable)
    if usable > 2 and usable - int(copied.sum()) == 1:
        yield Finding(
            severity="error",
            code="rows-all-equal",
            meaning="all rows are the same: every token means the same to the model",
            advice="the table was filled, not trained; fetch the weights again",
            count=usable,
        )
        return
    block = _repeated_block(seen, copied & survey.are(Kind.ORDINARY, Kind.UNKNOWN))
    if block is not None:
        first, source, length = block
        yield Finding(
            severity="error",
            code="block-repeated",
            meaning=f"rows {first:,} to {first + length - 1:,} repeat those from {source:,} on: pasted twice",
            advice="merge the shards of the table again, each once and in order",
            count=length,
            examples=rows.examples(copied & (seen.ids >= first)),
        )
        return
    for group in shared_rows(rows):
        count = int(group.rows.sum())
        if count:
            yield Finding(
                severity="warning" if group.alarming else "note",
                code="duplicate-rows",
                meaning=f"{rows_have(count)} the same values as "
                + ("others that look never trained" if group.untrained else "another's")
                + "; the model cannot tell their tokens apart",
                advice="were tokens added by copying a row? Then train them; else compare with the original",
                count=count,
                examples=rows.examples(group.rows, seen.first_equal.astype(np.float64)),
            )
    yield from unexplained(rows, copied & survey.are(Kind.UNKNOWN), "duplicate-rows", "the values of another row")


def shared_rows(rows: Rows) -> tuple[Shared, Shared]:
    """Ordinary tokens with equal rows: those that share one among themselves, and those that share an untrained one."""
    seen, ordinary = rows.statistics, rows.survey.are(Kind.ORDINARY)
    shared = seen.is_shared & ordinary
    rare_bytes, tokens = rows.survey.are_rare_bytes(shared), int(ordinary.sum())
    untrained = ~ordinary | rare_bytes  # a byte that shares its row is one the training never saw
    untrained[rows.untrained.rows] = True
    with_untrained = np.isin(seen.first_equal, seen.first_equal[untrained])
    alike, never = shared & ~with_untrained, shared & with_untrained
    return (
        Shared(alike, False, _is_slip(rows, alike, tokens)),
        Shared(never, True, int((never & ~rare_bytes).sum()) >= MAX_UNTRAINED * tokens),
    )


def _is_slip(rows: Rows, alike: Flags, tokens: int) -> bool:
    """Pairs are, and groups that hold a common token, and any of them if they are many."""
    seen = rows.statistics
    _, group_of, sizes = np.unique(seen.first_equal, return_inverse=True, return_counts=True)
    pairs = alike & (sizes[group_of.reshape(-1)] == 2)
    common = alike & (seen.ids < LATE * rows.survey.last_token)
    return bool(pairs.any() or common.any()) or int(alike.sum()) > MAX_ALIKE * tokens


def unexplained(rows: Rows, flags: Flags, code: str, what: str) -> Iterator[Finding]:
    """Odd rows of a table without a tokenizer: they may be padding, unless they are too many."""
    count = int(flags.sum())
    if count > 1:  # one is the padding row
        yield Finding(
            severity="warning" if count > MAX_UNEXPLAINED * len(flags) else "note",
            code=code,
            meaning=f"{rows_have(count)} {what}; without a tokenizer nobody knows whether text reaches them",
            advice="inspect it again with the tokenizer beside it",
            count=count,
            examples=rows.examples(flags),
        )


def rows_have(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"


def _repeated_block(seen: RowStatistics, copied: Flags) -> tuple[int, int, int] | None:
    """The longest run of neighbors that repeats another run, row by row: its first id, the other's, its length."""
    places = np.flatnonzero(copied)
    if len(places) < LONGEST_CHANCE:
        return None
    ids, sources = seen.ids[places], seen.first_equal[places]
    breaks = np.flatnonzero((np.diff(ids) != 1) | (np.diff(sources) != 1)) + 1
    starts, ends = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(ids)]))
    longest = int((ends - starts).argmax())
    length = int(ends[longest] - starts[longest])
    return (int(ids[starts[longest]]), int(sources[starts[longest]]), length) if length >= LONGEST_CHANCE else None
