"""What of the rows is a fault, and what is worth knowing of them.

[checkpoint] files -> facts -> [findings]
- alarms are about rows that ordinary text reaches. Zero, equal or untrained rows past the tokenizer, in reserved tokens
  and in the padding row are how healthy models look
- NaN and infinity are errors wherever they are: a tied head spreads them from any row
- without a tokenizer nobody knows which rows are reached: only what no padding explains is a warning then
- limits were set so that published models pass; each is a constant here, with its reason
Checked with damaged copies in tests/checkpoint/test_faults.py, on real models in tests/checkpoint/test_doctor.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from inlayer.checkpoint.doctor.health import RowStatistics
from inlayer.checkpoint.doctor.report import Finding, HealthFacts
from inlayer.checkpoint.doctor.rows import NARROWEST, Rows
from inlayer.checkpoint.doctor.survey import Kind

__all__ = ["row_findings"]

Flags = npt.NDArray[np.bool_]

OUTLIER_FACTOR = 30.0  # times the median norm; the longest rows of published models have below 10
OUTLIER_SPREADS = 10.0  # and so many robust spreads of the log norms away
SMALLEST_RMS, LARGEST_RMS = 1e-5, 1e4  # of the median row: Mistral's table has 0.003, T5's some 10
STRONGEST_CHANNEL = 0.9  # of all energy: a few strong channels are usual, one that is nearly all is not
MOST_DEAD_CHANNELS = 0.1
MOST_SHARED = 0.05  # of all rows: ordinary tokens that share a row nothing trained
MOST_UNTRAINED = 0.1  # of the ordinary rows; published models have up to some 3 %
MOST_UNEXPLAINED = 0.25  # of all rows, where there is no tokenizer: padding is less
LONGEST_CHANCE = 16  # rows of a block that repeats another: fewer may be tokens added alike


def row_findings(rows: Rows, facts: HealthFacts) -> Iterator[Finding]:
    """The faults of the rows, and what is worth knowing of them."""
    yield from _not_finite(rows)
    yield from _zero_rows(rows)
    yield from _copies(rows)
    yield from _constant_rows(rows)
    yield from _norms(rows, facts)
    yield from _channels(facts, rows.width)
    yield from _untrained(rows)
    if facts.padding_norm:
        yield Finding(
            severity="note",
            code="padding-row-not-zero",
            meaning=f"the padding row {facts.padding_id:,} is not zero: its norm is {facts.padding_norm:.3g}",
            advice="usual for models whose mask hides it (BERT); mask padding before any sum or mean",
        )
    if facts.newborn:
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
                meaning=f"{_rows(count)} {name}",
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
            meaning=f"{_rows(count)} nothing but zeros, though text reaches them: the model cannot tell them apart",
            advice="copy these rows from the original checkpoint, or train them before use",
            count=count,
            examples=rows.examples(ordinary),
        )
    yield from _unexplained(rows, unknown, "zero-rows", "nothing but zeros")


def _unexplained(rows: Rows, flags: Flags, code: str, what: str) -> Iterator[Finding]:
    """Odd rows of a table without a tokenizer: they may be padding, unless they are too many."""
    count = int(flags.sum())
    if count > 1:  # one is the padding row
        yield Finding(
            severity="warning" if count > MOST_UNEXPLAINED * len(flags) else "note",
            code=code,
            meaning=f"{_rows(count)} {what}; without a tokenizer nobody knows whether text reaches them",
            advice="inspect it again with the tokenizer beside it",
            count=count,
            examples=rows.examples(flags),
        )


def _copies(rows: Rows) -> Iterator[Finding]:
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
    shared = seen.is_shared & survey.are(Kind.ORDINARY)
    _, group_of, sizes = np.unique(seen.first_equal, return_inverse=True, return_counts=True)
    # A slip makes pairs. Three and more alike, or alike with a row that nothing trained, never learned: SmolLM2 has
    # four tokens that share the row of a special one, a small English model shares one among the bytes it never saw.
    unused = ~survey.are(Kind.ORDINARY) | (sizes[group_of.reshape(-1)] > 2)
    unused[rows.untrained.rows] = True
    with_unused = np.isin(seen.first_equal, seen.first_equal[unused])
    for group, untrained in ((shared & ~with_unused, False), (shared & with_unused, True)):
        count = int(group.sum())
        if count:
            few = untrained and count <= MOST_SHARED * len(group)
            yield Finding(
                severity="note" if few else "warning",
                code="duplicate-rows",
                meaning=f"{_rows(count)} the same values as "
                + ("others that look never trained" if untrained else "another's")
                + "; the model cannot tell their tokens apart",
                advice="were tokens added by copying a row? Then train them; else compare with the original",
                count=count,
                examples=rows.examples(group, seen.first_equal.astype(np.float64)),
            )
    yield from _unexplained(rows, copied & survey.are(Kind.UNKNOWN), "duplicate-rows", "the values of another row")


def _repeated_block(seen: RowStatistics, copied: Flags) -> tuple[int, int, int] | None:
    """The longest run of neighbours that repeats another run, row by row: its first id, the other's, its length."""
    places = np.flatnonzero(copied)
    if len(places) < LONGEST_CHANCE:
        return None
    ids, sources = seen.ids[places], seen.first_equal[places]
    breaks = np.flatnonzero((np.diff(ids) != 1) | (np.diff(sources) != 1)) + 1
    starts, ends = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(ids)]))
    longest = int((ends - starts).argmax())
    length = int(ends[longest] - starts[longest])
    return (int(ids[starts[longest]]), int(sources[starts[longest]]), length) if length >= LONGEST_CHANCE else None


def _constant_rows(rows: Rows) -> Iterator[Finding]:
    reached = rows.statistics.is_constant & rows.survey.are(Kind.ORDINARY, Kind.UNKNOWN)
    count = int(reached.sum())
    if count:
        yield Finding(
            severity="warning",
            code="constant-rows",
            meaning=f"{_rows(count)} one value in every channel, as a quantiser leaves that lost its scale",
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
            advice="was a scale applied twice, or a quantised table read without its scale?",
        )
    seen = rows.statistics
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(seen.norms / median)
    logs = distance[seen.finite & ~seen.is_zero]
    spread = max(1e-3, 1.4826 * float(np.median(np.abs(logs - np.median(logs)))))
    far = seen.finite & (seen.norms > OUTLIER_FACTOR * median) & (distance > OUTLIER_SPREADS * spread)
    for reached in (True, False):
        group = far & (rows.survey.are(Kind.ORDINARY, Kind.UNKNOWN) == reached)
        count = int(group.sum())
        if count:
            yield Finding(
                severity="warning" if reached else "note",
                code="norm-outliers",
                meaning=f"{_rows(count)} a norm more than {OUTLIER_FACTOR:g} times the median of {median:.3g}"
                + ("" if reached else "; ordinary text does not reach them"),
                advice="such a row drowns its neighbours; compare it with the original checkpoint",
                count=count,
                examples=rows.examples(group, seen.norms),
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
            severity="warning" if facts.dead_channels > MOST_DEAD_CHANNELS * width else "note",
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
    many = count > MOST_UNTRAINED * ordinary
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


def _rows(count: int) -> str:
    return "1 row has" if count == 1 else f"{count:,} rows have"
