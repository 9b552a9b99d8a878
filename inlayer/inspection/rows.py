"""Rows and their tokens: scan statistics combined with token kinds, and the facts derived from both.

source -> Model -> [facts] -> findings -> Report
- the same class serves the table and a head with its own weights
- elsewhere: reading rows (scan.py), classifying ids (token_kinds.py), findings (the check_*.py modules)
Tested in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from inlayer.inspection.check_undertrained import Undertrained, find_undertrained
from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.report import RowFacts
from inlayer.inspection.scan import Flags, Numbers, RowStatistics
from inlayer.inspection.token_kinds import REFERENCE_KINDS, TokenKind, TokenKinds

__all__ = ["MIN_CHANNELS", "Rows", "reference_rows", "row_facts"]

BINS = 32
MIN_CHANNELS = 16  # below this, shares of channels are meaningless


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows read from a table or a head, with the kinds of their tokens."""

    statistics: RowStatistics
    tokens: TokenKinds

    @property
    def width(self) -> int:
        return len(self.statistics.channel_means)

    @cached_property
    def undertrained(self) -> Undertrained:
        references = reference_rows(self.statistics, self.tokens)
        return find_undertrained(self.statistics, references, self.tokens.are(TokenKind.ORDINARY))

    @property
    def usable_norms(self) -> Numbers:
        """Norms of the rows that are finite and not zero."""
        return self.statistics.norms[self.statistics.finite & ~self.statistics.is_zero]

    @property
    def duplicates(self) -> Flags:
        return self.statistics.is_duplicate & ~self.statistics.is_zero & self.statistics.finite

    @property
    def all_identical(self) -> bool:
        usable = len(self.usable_norms)
        return usable > 2 and usable - int(self.duplicates.sum()) == 1

    @property
    def rms(self) -> float | None:
        """Root mean square of the values of a typical row."""
        return float(np.median(self.usable_norms) / np.sqrt(self.width)) if len(self.usable_norms) else None

    def finding(
        self,
        severity: Severity,
        code: str,
        message: str,
        flags: Flags,
        values: Numbers | None = None,
        advice: str = "",
    ) -> Iterator[Finding]:
        """A finding about the flagged rows, with examples; nothing if no row is flagged.

        "{rows}" in the message becomes "1 row has" or "7 rows have"; `values` are shown with the examples.
        """
        count = int(flags.sum())
        if not count:
            return
        message = message.replace("{rows}", "1 row has" if count == 1 else f"{count:,} rows have")
        ids = self.statistics.ids[flags].tolist()
        examples = self.tokens.examples(ids) if values is None else self.tokens.examples(ids, values[flags].tolist())
        yield Finding(severity, code, message, count, examples, advice)


def reference_rows(statistics: RowStatistics, tokens: TokenKinds) -> Flags:
    """Rows that were never trained: no text reaches them, or they are special and still equal another row."""
    return tokens.are(*REFERENCE_KINDS) | (tokens.are(TokenKind.SPECIAL) & statistics.is_shared)


def row_facts(rows: Rows, padding_id: int | None, near_zero_share: float | None) -> RowFacts:
    """Counts of unusual rows, norms and channels. The norm of `padding_id` is reported separately."""
    scan, norms, undertrained = rows.statistics, rows.usable_norms, rows.undertrained
    energy = scan.channel_energy
    total = float(energy.sum())
    counts, edges = _histogram(norms)
    dominant = int(energy.argmax()) if total > 0 else None
    padding = np.flatnonzero(scan.ids == (-1 if padding_id is None else padding_id))
    return RowFacts(
        rows_read=len(scan.ids),
        nan_rows=int(scan.has_nan.sum()),
        inf_rows=int(scan.has_inf.sum()),
        zero_rows=int(scan.is_zero.sum()),
        constant_rows=int(scan.is_constant.sum()),
        duplicate_rows=int(rows.duplicates.sum()),
        norm_min=float(norms.min()) if len(norms) else None,
        norm_median=float(np.median(norms)) if len(norms) else None,
        norm_max=float(norms.max()) if len(norms) else None,
        norm_histogram=tuple(counts),
        histogram_min=edges[0],
        histogram_max=edges[1],
        padding_id=padding_id,
        padding_norm=float(scan.norms[padding[0]]) if len(padding) else None,
        dominant_channel=dominant,
        dominant_channel_energy=float(energy[dominant]) / total if dominant is not None else None,
        dead_channels=int((energy == 0).sum()) if total > 0 else 0,
        near_zero_share=near_zero_share,
        randomly_initialized=_is_randomly_initialized(rows),
        undertrained_rows=int(undertrained.rows.sum()),
        reference_rows=undertrained.references,
        norm_threshold=undertrained.norm_threshold,
        cosine_threshold=undertrained.cosine_threshold,
    )


def _histogram(norms: Numbers) -> tuple[list[int], tuple[float | None, float | None]]:
    """Counts per bin, and the range of the bins: up to the largest norm, or to 4 medians if it is an outlier."""
    if not len(norms):
        return [], (None, None)
    low = float(norms.min())
    high = min(float(norms.max()), max(low, 4 * float(np.median(norms))))
    counts, _ = np.histogram(norms, BINS, (low, high))
    return [int(count) for count in counts], (low, high)


def _is_randomly_initialized(rows: Rows) -> bool:
    """Whether the values look like independent draws: norms spread as by chance, channel means that cancel out."""
    norms, scan = rows.usable_norms, rows.statistics
    total = float(scan.channel_energy.sum())
    if len(norms) < 64 or rows.width < MIN_CHANNELS or not total > 0:
        return False
    by_chance = 1 / np.sqrt(2 * rows.width)
    spread = float(norms.std() / norms.mean())
    mean_vector_energy = float((scan.channel_means**2).sum()) / total * len(norms)  # about 1 for independent rows
    return bool(0.8 * by_chance < spread < 1.25 * by_chance and mean_vector_energy < 2)
