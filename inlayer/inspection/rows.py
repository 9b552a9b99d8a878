"""The rows of a table or head: what the scan found, the kinds of their tokens, and facts about them.

source -> Model -> [facts] -> findings -> Report
- the same class serves the table and a head with its own weights
- undertrained rows resemble those of reference tokens, which text never produces: rows without a token, reserved
  tokens and impossible bytes. The method is from Land and Bartolo, "Fishing for Magikarp" (2024)
- there are two criteria. Norm: weight decay shrinks their rows. Cosine similarity: their rows share a direction, which
  reveals BERT's `[unused]` rows where norms do not. A criterion is used only if it clearly separates references from
  ordinary rows
- see also: reading rows (scan.py), classifying ids (token_kinds.py), findings (check_rows.py)
Tested on planted rows in tests/inspection/test_scan.py, on MiniLM in tests/inspection/test_report.py, and with damaged
rows in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.report import MIN_REFERENCES, RowFacts
from inlayer.inspection.scan import Flags, Numbers, RowStatistics
from inlayer.inspection.token_kinds import TokenKind, TokenKinds

BINS = 32
MIN_CHANNELS = 16  # below this, shares of channels are meaningless
REFERENCE_QUANTILE = 0.75  # a few references may be trained after all, such as a reserved token that came into use
TOLERANCE = 0.1  # an ordinary row may be this much farther out than the references
MAX_NORM_RATIO = 0.5  # norm ratio of references to ordinary rows
MIN_COSINE = 0.5  # cosine of references to their mean direction
MAX_DISTANCE_RATIO = 1 / 3  # ratio of distances (1 - cosine) of references to ordinary rows
MAX_MATCHES = 0.5  # share of the ordinary rows: beyond this, a criterion does not separate them


class Undertrained(NamedTuple):
    """Flags of the undertrained rows. A threshold is None if its criterion was not used."""

    rows: Flags
    references: int
    norm_threshold: float | None = None
    cosine_threshold: float | None = None


@dataclass(frozen=True, eq=False)
class ScannedRows:
    """The rows read from a table or a head, with the kinds of their tokens."""

    statistics: RowStatistics
    tokens: TokenKinds

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


def reference_rows(statistics: RowStatistics, tokens: TokenKinds) -> Flags:
    """Flag rows that were never trained: no text reaches them, or they are special and still equal another row."""
    return tokens.has_kind(*tokens.reference_kinds) | (tokens.has_kind(TokenKind.SPECIAL) & statistics.is_shared)


def find_undertrained(statistics: RowStatistics, is_reference: Flags, is_ordinary: Flags) -> Undertrained:
    """Find ordinary rows that look like the rows of reference tokens."""
    references, ordinary = is_reference & statistics.usable, is_ordinary & statistics.usable
    count, found = int(references.sum()), np.zeros(len(references), np.bool_)
    if count < MIN_REFERENCES or not ordinary.any():
        return Undertrained(found, count)
    norms, cosines, min_cosine = statistics.norms, statistics.cosines, None
    max_norm = _threshold(norms[references], norms[ordinary], MAX_NORM_RATIO)
    if max_norm is not None:
        found |= norms <= max_norm
    if cosines is not None:
        max_distance = _threshold(1 - cosines[references], 1 - cosines[ordinary], MAX_DISTANCE_RATIO)
        if max_distance is not None and max_distance < 1 - MIN_COSINE:
            min_cosine = 1 - max_distance
            found |= cosines >= min_cosine
    return Undertrained(ordinary & found, count, max_norm, min_cosine)


def _threshold(references: Numbers, ordinary: Numbers, max_ratio: float) -> float | None:
    """Return the largest value of a reference, apart from outliers; None if many ordinary values are that small."""
    threshold = (1 + TOLERANCE) * float(np.quantile(references, REFERENCE_QUANTILE))
    separate = threshold < max_ratio * float(np.median(ordinary))
    return threshold if separate and float((ordinary <= threshold).mean()) < MAX_MATCHES else None


def row_facts(rows: ScannedRows, padding_id: int | None, near_zero_share: float | None) -> RowFacts:
    """Count unusual rows, and summarize norms and channels. The norm of `padding_id` is reported separately."""
    scan, undertrained, energy = rows.statistics, rows.undertrained, rows.statistics.channel_energy
    norms, total = scan.norms[scan.usable], float(energy.sum())
    low = median = high = top = None
    counts: list[int] = []
    if len(norms):
        low, median, high = float(norms.min()), float(np.median(norms)), float(norms.max())
        top = min(high, max(low, 4 * median))  # of the histogram: up to 4 medians if the largest norm is an outlier
        # from 0 up, because numpy cannot divide a narrow range far from 0
        counts = np.histogram(norms - low, BINS, (0.0, top - low))[0].tolist()
    dominant = int(energy.argmax()) if total > 0 else None
    padding = scan.norms[scan.ids == (-1 if padding_id is None else padding_id)].tolist()
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
        histogram_min=low,
        histogram_max=top,
        padding_id=padding_id,
        padding_norm=padding[0] if padding else None,
        dominant_channel=dominant,
        dominant_channel_energy=float(energy[dominant]) / total if dominant is not None else None,
        dead_channels=int((energy == 0).sum()) if total > 0 else 0,
        near_zero_share=near_zero_share,
        randomly_initialized=_is_randomly_initialized(scan),
        undertrained_rows=int(undertrained.rows.sum()),
        reference_rows=undertrained.references,
        norm_threshold=undertrained.norm_threshold,
        cosine_threshold=undertrained.cosine_threshold,
    )


def _is_randomly_initialized(scan: RowStatistics) -> bool:
    """Return whether the values look like independent draws: norms vary as by chance, and channel means cancel out."""
    norms, total = scan.norms[scan.usable], float(scan.channel_energy.sum())
    if len(norms) < 64 or scan.width < MIN_CHANNELS or not total > 0:
        return False
    by_chance = 1 / np.sqrt(2 * scan.width)
    spread = float(norms.std() / norms.mean())
    mean_vector_energy = float((scan.channel_means**2).sum()) / total * len(norms)  # near 1 for independent rows
    lowest = 0.8 * np.sqrt(0.4) * by_chance  # norms of uniform values spread sqrt(0.4) times as much as normal ones
    return bool(lowest < spread < 1.25 * by_chance and mean_vector_energy < 2)
