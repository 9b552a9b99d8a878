"""The rows of a table or head: what the scan found, the kinds of their tokens, and facts about them.

source -> Model -> [facts] -> findings -> Report
- the same class serves the table and a head with its own weights
- see also: reading rows (scan.py), classifying ids (token_kinds.py), undertrained rows (undertrained.py), findings
  (check_rows.py)
Tested in tests/inspection/test_report.py, and with damaged rows in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.report import RowFacts
from inlayer.inspection.scan import Flags, Numbers, RowStatistics
from inlayer.inspection.token_kinds import TokenKind, TokenKinds
from inlayer.inspection.undertrained import Undertrained, find_undertrained, reference_rows

BINS = 32
MIN_CHANNELS = 16  # below this, shares of channels are meaningless


@dataclass(frozen=True, eq=False)
class ScannedRows:
    """The rows read from a table or a head, with the kinds of their tokens."""

    statistics: RowStatistics
    tokens: TokenKinds

    @property
    def width(self) -> int:
        return len(self.statistics.channel_means)

    @cached_property
    def undertrained(self) -> Undertrained:
        references = reference_rows(self.statistics, self.tokens)
        return find_undertrained(self.statistics, references, self.tokens.has_kind(TokenKind.ORDINARY))

    @property
    def duplicates(self) -> Flags:
        return self.statistics.is_duplicate & self.statistics.usable

    @property
    def all_identical(self) -> bool:
        usable = int(self.statistics.usable.sum())
        return usable > 2 and usable - int(self.duplicates.sum()) == 1

    @property
    def rms(self) -> float | None:
        """Root mean square of the values of a typical row."""
        norms = self.statistics.norms[self.statistics.usable]
        return float(np.median(norms) / np.sqrt(self.width)) if len(norms) else None

    def finding(
        self,
        severity: Severity,
        code: str,
        message: str,
        flags: Flags,
        values: Numbers | None = None,
        advice: str = "",
    ) -> Iterator[Finding]:
        """Yield a finding about the flagged rows; nothing if no row is flagged.

        "{rows}" in the message becomes "1 row has" or "7 rows have"; `values` are shown with the examples.
        """
        ids = self.statistics.ids[flags].tolist()
        if ids:
            message = message.replace("{rows}", "1 row has" if len(ids) == 1 else f"{len(ids):,} rows have")
            examples = self.tokens.examples(ids, [] if values is None else values[flags].tolist())
            yield Finding(severity, code, message, ids=tuple(ids), examples=examples, advice=advice)


def row_facts(rows: ScannedRows, padding_id: int | None, near_zero_share: float | None) -> RowFacts:
    """Count unusual rows, and summarize norms and channels. The norm of `padding_id` is reported separately."""
    scan, undertrained, energy = rows.statistics, rows.undertrained, rows.statistics.channel_energy
    norms, total = scan.norms[scan.usable], float(energy.sum())
    low = median = high = edges = None
    counts: list[int] = []
    if len(norms):
        low, median, high = float(norms.min()), float(np.median(norms)), float(norms.max())
        edges = low, min(high, max(low, 4 * median))  # up to 4 medians if the largest norm is an outlier
        # from 0 up, because numpy cannot divide a narrow range far from 0
        counts = np.histogram(norms - low, BINS, (0.0, edges[1] - low))[0].tolist()
    dominant = int(energy.argmax()) if total > 0 else None
    padding = np.flatnonzero(scan.ids == (-1 if padding_id is None else padding_id))
    return RowFacts(
        rows_read=len(scan.ids),
        nan_rows=int(scan.has_nan.sum()),
        inf_rows=int(scan.has_inf.sum()),
        zero_rows=int(scan.is_zero.sum()),
        constant_rows=int(scan.is_constant.sum()),
        duplicate_rows=int(rows.duplicates.sum()),
        norm_min=low,
        norm_median=median,
        norm_max=high,
        norm_histogram=tuple(counts),
        histogram_min=edges[0] if edges else None,
        histogram_max=edges[1] if edges else None,
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


def _is_randomly_initialized(rows: ScannedRows) -> bool:
    """Return whether the values look like independent draws: norms vary as by chance, and channel means cancel out."""
    scan, norms = rows.statistics, rows.statistics.norms[rows.statistics.usable]
    total = float(scan.channel_energy.sum())
    if len(norms) < 64 or rows.width < MIN_CHANNELS or not total > 0:
        return False
    by_chance = 1 / np.sqrt(2 * rows.width)
    spread = float(norms.std() / norms.mean())
    mean_vector_energy = float((scan.channel_means**2).sum()) / total * len(norms)  # near 1 for independent rows
    lowest = 0.8 * np.sqrt(0.4) * by_chance  # norms of uniform values spread sqrt(0.4) times as much as normal ones
    return bool(lowest < spread < 1.25 * by_chance and mean_vector_energy < 2)
