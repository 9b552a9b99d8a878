"""Row values: NaN, zero and constant rows, norms, channels, padding and random initialization.

source -> Model -> facts -> [findings] -> Report
- warnings are about rows that ordinary text reaches. Zero, equal or untrained rows beyond the tokenizer, in reserved
  tokens and in the padding row are normal in healthy models
- NaN and infinity are errors in every row: a tied head spreads them to all logits
- without a tokenizer it is unknown which rows are reached; only what padding cannot explain is a warning then
- thresholds let published models pass; each is a constant with its reason
- elsewhere: duplicate rows (check_duplicates.py), undertrained tokens (check_undertrained.py)
Tested with damaged checkpoints in tests/inspection/test_faults.py, on real models in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inlayer.inspection.check_duplicates import unknown_row_findings
from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.report import RowFacts
from inlayer.inspection.rows import MIN_CHANNELS, Rows
from inlayer.inspection.scan import Flags
from inlayer.inspection.token_kinds import TokenKind

__all__ = ["row_value_findings"]

MAX_ZERO_ROWS = 0.01  # of all rows; more are an error
MAX_NORM_RATIO = 30.0  # to the median norm; published models stay below 10
MAX_DEVIATIONS = 10.0  # robust standard deviations of the log norm; both limits must be exceeded
EXPLODED_RATIO, EXPLODED_LIMIT = 100.0, 20.0  # if the largest ratio exceeds the first, the second is the limit
MIN_RMS, MAX_RMS = 1e-5, 1e4  # of the median row: 0.003 in Mistral's table, about 10 in T5's
MAX_CHANNEL_ENERGY = 0.9  # of all energy: a few strong channels are common, one that dominates is not
MAX_DEAD_CHANNELS = 0.1
MIN_NEAR_ZERO = 0.005  # of the values; 8 % of normally distributed ones, almost none if the dtype is wrong


def row_value_findings(rows: Rows, facts: RowFacts) -> Iterator[Finding]:
    """Unusual values in the rows of a table."""
    scan, tokens = rows.statistics, rows.tokens
    yield from rows.finding("error", "nan-rows", "{rows} NaN", scan.has_nan)
    yield from rows.finding("error", "inf-rows", "{rows} infinite values", scan.has_inf)
    zero = scan.is_zero & tokens.are(TokenKind.ORDINARY)
    severity: Severity = "error" if zero.sum() > MAX_ZERO_ROWS * len(zero) else "warning"
    message = "{rows} only zeros although text reaches them; the model cannot distinguish these tokens"
    yield from rows.finding(severity, "zero-rows", message, zero)
    yield from unknown_row_findings(rows, scan.is_zero & tokens.are(TokenKind.UNKNOWN), "zero-rows", "only zeros")
    reached = tokens.are(TokenKind.ORDINARY, TokenKind.UNKNOWN)
    message = "{rows} the same value in every channel"
    yield from rows.finding("warning", "constant-rows", message, scan.is_constant & reached, scan.norms)
    yield from _norm_findings(rows, facts.norm_median, reached)
    if facts.near_zero_share is not None and facts.near_zero_share < MIN_NEAR_ZERO:
        message = f"only {facts.near_zero_share:.2%} of the values are near zero, unlike in any trained table"
        yield Finding("warning", "unusual-value-distribution", message)
    yield from _channel_findings(facts, rows.width)
    if facts.padding_norm:
        message = f"the padding row {facts.padding_id:,} is not zero; its norm is {facts.padding_norm:.3g}"
        yield Finding("note", "padding-row-nonzero", message)
    if facts.randomly_initialized:
        yield Finding("note", "random-initialization", "the table looks randomly initialized and not yet trained")


def _norm_findings(rows: Rows, median: float | None, is_reached: Flags) -> Iterator[Finding]:
    scan, rms = rows.statistics, rows.rms
    if median is None or rms is None:
        return
    if not MIN_RMS <= rms <= MAX_RMS:
        code = "scale-too-small" if rms < MIN_RMS else "scale-too-large"
        message = f"values of a typical row are about {rms:.1g}, unlike in any published model"
        yield Finding("warning", code, message)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(scan.norms / median)
    usable = scan.finite & ~scan.is_zero
    deviation = max(1e-3, 1.4826 * float(np.median(np.abs(distance[usable] - np.median(distance[usable])))))
    outliers = scan.finite & (scan.norms > MAX_NORM_RATIO * median) & (distance > MAX_DEVIATIONS * deviation)
    reached_norms = scan.norms[is_reached & usable]
    if len(reached_norms) and reached_norms.max() > EXPLODED_RATIO * np.median(reached_norms):
        outliers |= is_reached & scan.finite & (scan.norms > EXPLODED_LIMIT * np.median(reached_norms))
    for reached in (True, False):
        group = outliers & (is_reached == reached)
        ratio = float(scan.norms[group].max(initial=0)) / median
        message = f"{{rows}} a norm up to {ratio:,.0f} times the median of {median:.3g}"
        message += "" if reached else "; ordinary text does not reach them"
        yield from rows.finding("warning" if reached else "note", "norm-outliers", message, group, scan.norms)


def _channel_findings(facts: RowFacts, width: int) -> Iterator[Finding]:
    if width < MIN_CHANNELS:
        return
    share, dead = facts.dominant_channel_energy, facts.dead_channels
    if share is not None and share > MAX_CHANNEL_ENERGY:
        message = f"channel {facts.dominant_channel} holds {share:.1%} of the table's energy (sum of squares)"
        yield Finding("warning", "dominant-channel", message)
    if dead:
        severity: Severity = "warning" if dead > MAX_DEAD_CHANNELS * width else "note"
        yield Finding(severity, "dead-channels", f"{dead:,} of {width:,} channels are zero in every row", dead)
