"""Undertrained rows: scan statistics combined with token kinds, and the facts about rows and tokens.

source -> Model -> [facts] -> findings -> Report
- the same class serves the table and a head with its own weights
- undertrained rows resemble those of reference tokens, which text never produces: rows without a token, reserved
  tokens and impossible bytes. The method is from Land and Bartolo, "Fishing for Magikarp" (2024)
- two criteria. Norm: weight decay shrinks their rows. Cosine similarity: their rows share a direction, which
  reveals BERT's `[unused]` rows where norms do not. Each is used only if it clearly separates references from ordinary
  rows
- see also: reading rows (scan.py), classifying ids (token_kinds.py), findings (check_rows.py)
Tested on planted rows in tests/inspection/test_scan.py and on MiniLM in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.report import RowFacts
from inlayer.inspection.scan import Flags, Numbers, RowStatistics
from inlayer.inspection.token_kinds import TokenKind, TokenKinds

BINS = 32
MIN_CHANNELS = 16  # below this, shares of channels are meaningless
MIN_REFERENCES = 8
REFERENCE_QUANTILE = 0.75  # some references are not what they seem, such as a reserved token that came into use
TOLERANCE = 0.1  # an ordinary row may be this much farther out than the references
MAX_NORM_RATIO = 0.5  # of references to ordinary rows, for the norm criterion
MIN_COSINE = 0.5  # of references to their mean direction, for the cosine criterion
MIN_DISTANCE_RATIO = 3.0  # of the median ordinary row to references, measured as 1 - cosine
MAX_MATCHES = 0.5  # of the ordinary rows: beyond this, a criterion does not separate them


class Undertrained(NamedTuple):
    """Flags of the undertrained rows. A threshold is None if its criterion was not used."""

    rows: Flags
    references: int
    norm_threshold: float | None = None
    cosine_threshold: float | None = None


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
        return find_undertrained(self.statistics, references, self.tokens.has_kind(TokenKind.ORDINARY))

    @property
    def usable(self) -> Flags:
        return self.statistics.usable

    @property
    def duplicates(self) -> Flags:
        return self.statistics.is_duplicate & self.usable

    @property
    def all_identical(self) -> bool:
        usable = int(self.usable.sum())
        return usable > 2 and usable - int(self.duplicates.sum()) == 1

    @property
    def rms(self) -> float | None:
        """Root mean square of the values of a typical row."""
        norms = self.statistics.norms[self.usable]
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
        """A finding about the flagged rows; nothing if no row is flagged.

        "{rows}" in the message becomes "1 row has" or "7 rows have"; `values` are shown with the examples.
        """
        ids = self.statistics.ids[flags].tolist()
        if ids:
            message = message.replace("{rows}", "1 row has" if len(ids) == 1 else f"{len(ids):,} rows have")
            examples = self.tokens.examples(ids, [] if values is None else values[flags].tolist())
            yield Finding(severity, code, message, ids=tuple(ids), examples=examples, advice=advice)


def reference_rows(statistics: RowStatistics, tokens: TokenKinds) -> Flags:
    """Rows that were never trained: no text reaches them, or they are special and still equal another row."""
    return tokens.has_kind(*tokens.reference_kinds) | (tokens.has_kind(TokenKind.SPECIAL) & statistics.is_shared)


def find_undertrained(statistics: RowStatistics, is_reference: Flags, is_ordinary: Flags) -> Undertrained:
    """Find ordinary rows that look like those of the reference tokens."""
    usable = statistics.usable
    references, ordinary = is_reference & usable, is_ordinary & usable
    count, none = int(references.sum()), np.zeros(len(usable), np.bool_)
    if count < MIN_REFERENCES or not ordinary.any():
        return Undertrained(none, count)
    norms, cosines = statistics.norms, statistics.cosines
    norm_threshold = _norm_threshold(norms[references], norms[ordinary])
    by_norm = none if norm_threshold is None else norms <= norm_threshold
    cosine_threshold = None if cosines is None else _cosine_threshold(cosines[references], cosines[ordinary])
    by_cosine = none if cosines is None or cosine_threshold is None else cosines >= cosine_threshold
    return Undertrained(ordinary & (by_norm | by_cosine), count, norm_threshold, cosine_threshold)


def _norm_threshold(references: Numbers, ordinary: Numbers) -> float | None:
    threshold = (1 + TOLERANCE) * float(np.quantile(references, REFERENCE_QUANTILE))
    separate = threshold < MAX_NORM_RATIO * float(np.median(ordinary))
    return threshold if separate and float((ordinary <= threshold).mean()) < MAX_MATCHES else None


def _cosine_threshold(references: Numbers, ordinary: Numbers) -> float | None:
    threshold = 1 - (1 + TOLERANCE) * (1 - float(np.quantile(references, 1 - REFERENCE_QUANTILE)))
    separate = threshold > MIN_COSINE and 1 - float(np.median(ordinary)) > MIN_DISTANCE_RATIO * (1 - threshold)
    return threshold if separate and float((ordinary >= threshold).mean()) < MAX_MATCHES else None


def row_facts(rows: Rows, padding_id: int | None, near_zero_share: float | None) -> RowFacts:
    """Counts of unusual rows, norms and channels. The norm of `padding_id` is reported separately."""
    scan, undertrained, energy = rows.statistics, rows.undertrained, rows.statistics.channel_energy
    norms, total = scan.norms[rows.usable], float(energy.sum())
    low = median = high = edges = None
    counts: list[int] = []
    if len(norms):
        low, median, high = float(norms.min()), float(np.median(norms)), float(norms.max())
        edges = low, min(high, max(low, 4 * median))  # up to 4 medians if the largest norm is an outlier
        counts = np.histogram(norms, BINS, edges)[0].tolist()
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


def _is_randomly_initialized(rows: Rows) -> bool:
    """Whether the values look like independent draws: norms spread as by chance, channel means that cancel out."""
    norms, scan = rows.statistics.norms[rows.usable], rows.statistics
    total = float(scan.channel_energy.sum())
    if len(norms) < 64 or rows.width < MIN_CHANNELS or not total > 0:
        return False
    by_chance = 1 / np.sqrt(2 * rows.width)
    spread = float(norms.std() / norms.mean())
    mean_vector_energy = float((scan.channel_means**2).sum()) / total * len(norms)  # about 1 for independent rows
    return bool(0.8 * by_chance < spread < 1.25 * by_chance and mean_vector_energy < 2)
