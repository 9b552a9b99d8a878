"""What of the rows is a fault, and what is worth knowing of them.

[checkpoint] files -> facts -> [findings]
- alarms are about rows that ordinary text reaches. Zero, equal or untrained rows past the tokenizer, in reserved tokens
  and in the padding row are how healthy models look
- NaN and infinity are errors wherever they are: a tied head spreads them from any row
- without a tokenizer nobody knows which rows are reached: only what no padding explains is a warning then
- limits were set so that published models pass; each is a constant here, with its reason
Checked with damaged copies in tests/inspection/test_faults.py, on real models in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from inlayer.inspection.copies import copy_findings, rows_have, unexplained
from inlayer.inspection.report import Finding, HealthFacts
from inlayer.inspection.rows import NARROWEST, Rows
from inlayer.inspection.survey import Kind

__all__ = ["row_findings"]

OUTLIER_FACTOR = 30.0  # times the median norm; the longest rows of published models have below 10
OUTLIER_SPREADS = 10.0  # and so many robust spreads of the log norms away
EXPLODED, EXPLODED_FACTOR = 100.0, 20.0  # where the longest row has the one, those past the other, whatever the spread
SMALLEST_RMS, LARGEST_RMS = 1e-5, 1e4  # of the median row: Mistral's table has 0.003, T5's some 10
STRONGEST_CHANNEL = 0.9  # of all energy: a few strong channels are usual, one that is nearly all is not
MAX_DEAD_CHANNELS = 0.1
MIN_SMALL = 0.005  # of the values; normal ones have 8 %, those of a dtype that was mistaken for another nearly none
MAX_UNTRAINED = 0.1  # of the ordinary rows; published models have up to some 3 %


def row_findings(rows: Rows, facts: HealthFacts) -> Iterator[Finding]:
    """The faults of the rows, and what is worth knowing of them."""
    yield from _not_finite(rows)
    yield from _zero_rows(rows)
    yield from copy_findings(rows)
    yield from _constant_rows(rows)
    yield from _norms(rows, facts)
    yield from _values(facts)
    yield from _channels(facts, rows.width)
    yield from _untrained(rows)
    if facts.padding_norm:
        yield Finding(
            severity="note",
            code="padding-row-not-zero",
            meaning=f"the padding row {facts.padding_id:,} is not zero: its norm is {facts.padding_norm:.3g}",
            advice="usual for models whose mask hides it (BERT); mask padding before any sum or mean",
        )
    if facts.random_pipeline:
        yield Finding(
            severity="note",
            code="newborn",
            meaning="the rows look like fresh random numbers: nothing was learned yet",
            advice="fine for a model that is to be trained; a trained one was saved wrongly",
        )


def _not_finite(rows: Rows) -> Iterator[Finding]:
    seen = rows.statistics
    for code, name, flags in (("nan-rows", "NaN", seen.has_nan), ("inf-rows", "infinity", seen.has_inf)):
        count = int(flags.sum())
        if count:
            yield Finding(
                severity="error",
                code=code,
                meaning=f"{rows_have(count)} {name}",
                advice="fetch the file again; if it is a fresh result, the training diverged or a cast overflowed",
                count=count,
                examples=rows.examples(flags),
            )


def _zero_rows(rows: Rows) -> Iterator[Finding]:
    zero, survey = rows.statistics.is_zero, rows.survey
    ordinary, unknown = zero & survey.are(Kind.ORDINARY), zero & survey.are(Kind.UNKNOWN)
    count = int(ordinary.sum())
    if count:
        yield Finding(
            severity="error" if count > 0.01 * len(zero) else "warning",
            code="zero-rows",
            meaning=f"{rows_have(count)} nothing but zeros, though text reaches them: the model cannot tell them apart",
            advice="copy these rows from the original checkpoint, or train them before use",
            count=count,
            examples=rows.examples(ordinary),
        )
    yield from unexplained(rows, unknown, "zero-rows", "nothing but zeros")


def _constant_rows(rows: Rows) -> Iterator[Finding]:
    reached = rows.statistics.is_constant & rows.survey.are(Kind.ORDINARY, Kind.UNKNOWN)
    count = int(reached.sum())
    if count:
        yield Finding(
            severity="warning",
            code="constant-rows",
            meaning=f"{rows_have(count)} one value in every channel, as a quantizer leaves that lost its scale",
            advice="convert the table again from the original",
            count=count,
            examples=rows.examples(reached, rows.statistics.norms),
        )


def _norms(rows: Rows, facts: HealthFacts) -> Iterator[Finding]:
    median = facts.norm_median
    if median is None:
        return
    rms = median / np.sqrt(rows.width)
    if not SMALLEST_RMS <= rms <= LARGEST_RMS:
        yield Finding(
            severity="warning",
            code="rows-tiny" if rms < SMALLEST_RMS else "rows-huge",
            meaning=f"the values of a usual row are about {rms:.1g}: no published model has such a table",
            advice="was a scale applied twice, or a quantized table read without its scale?",
        )
    seen = rows.statistics
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(seen.norms / median)
    logs = distance[seen.finite & ~seen.is_zero]
    spread = max(1e-3, 1.4826 * float(np.median(np.abs(logs - np.median(logs)))))
    far = seen.finite & (seen.norms > OUTLIER_FACTOR * median) & (distance > OUTLIER_SPREADS * spread)
    is_reached = rows.survey.are(Kind.ORDINARY, Kind.UNKNOWN)
    usual = seen.norms[is_reached & seen.finite & ~seen.is_zero]
    if len(usual) and usual.max() > EXPLODED * np.median(usual):
        far |= is_reached & seen.finite & (seen.norms > EXPLODED_FACTOR * np.median(usual))
    for reached in (True, False):
        group = far & (is_reached == reached)
        count = int(group.sum())
        if count:
            yield Finding(
                severity="warning" if reached else "note",
                code="norm-outliers",
                meaning=f"{rows_have(count)} a norm far past the median of {median:.3g}, up to "
                f"{float(seen.norms[group].max()) / median:,.0f} times as long"
                + ("" if reached else "; ordinary text does not reach them"),
                advice="such a row drowns its neighbors; compare it with the original checkpoint",
                count=count,
                examples=rows.examples(group, seen.norms),
            )


def _values(facts: HealthFacts) -> Iterator[Finding]:
    if facts.small_values is not None and facts.small_values < MIN_SMALL:
        yield Finding(
            severity="warning",
            code="values-odd",
            meaning=f"only {facts.small_values:.2%} of the values are near zero: no trained table is so",
            advice="was a bfloat16 table saved or labeled as float16, or were only signs kept? Convert it again",
        )


def _channels(facts: HealthFacts, width: int) -> Iterator[Finding]:
    if width < NARROWEST:
        return
    if facts.strongest_share is not None and facts.strongest_share > STRONGEST_CHANNEL:
        yield Finding(
            severity="warning",
            code="one-channel",
            meaning=f"channel {facts.strongest_channel} holds {facts.strongest_share:.1%} of all the table's energy",
            advice="was one column scaled by mistake? Compare it with the original checkpoint",
        )
    if facts.dead_channels:
        yield Finding(
            severity="warning" if facts.dead_channels > MAX_DEAD_CHANNELS * width else "note",
            code="dead-channels",
            meaning=f"{facts.dead_channels:,} of {width:,} channels are zero in every row",
            advice="was a shard of the columns lost when they were merged?",
            count=facts.dead_channels,
        )


def _untrained(rows: Rows) -> Iterator[Finding]:
    count, ordinary = len(rows.untrained.rows), int(rows.survey.are(Kind.ORDINARY).sum())
    if not count:
        return
    flags = np.zeros(len(rows.statistics.ids), np.bool_)
    flags[rows.untrained.rows] = True
    many = count > MAX_UNTRAINED * ordinary
    yield Finding(
        severity="warning" if many else "note",
        code="never-trained",
        meaning=f"{count:,} of {ordinary:,} ordinary tokens look never trained: their rows are like the "
        f"{rows.untrained.references:,} that nothing trained",
        advice="so many mean that the tokenizer, or its order, is not the one the table was trained with"
        if many
        else "usual for rare tokens; what the model makes of them is chance",
        count=count,
        examples=rows.examples(flags, rows.statistics.norms),
    )
