"""Rows: NaN, zero, constant, and duplicate rows, norms, channels, padding, and undertrained tokens.

source -> Model -> [facts -> findings] -> Report
- warnings are about tokens that ordinary text produces. Zero, equal, or untrained rows beyond the tokenizer, in
  reserved tokens, and in the padding row are normal in healthy models
- NaN and infinity are errors in every row: a tied head spreads them to all logits
- without a tokenizer, inspect cannot tell which ids text produces, so a row is a warning only if padding cannot
  explain it
- healthy models have duplicates: reserved tokens, padding, and a few words missing from the training text. In SmolLM2,
  four tokens share a special token's row; in a small English model, all bytes that it never saw share a row. A few
  duplicates are a note. Ordinary tokens that share a trained row are a warning, except for the last tokens
  of a vocabulary, which are its rarest (merges are learned by frequency)
- many undertrained tokens are reported as a note, and the report lists their cause under "not checked": the training
  text may have been short, or the tokenizer may belong to another model. If training recorded fewer unseen tokens,
  they are reported as a warning
- published models pass every check; each threshold is a constant with a comment that justifies it
- see also: reading rows (scan.py), undertrained rows (undertrained.py), the same rules for a head (check_head.py)
Tested on planted rows in tests/inspection/test_scan.py, with damaged checkpoints in tests/inspection/test_faults.py,
and on real models in tests/inspection/test_report.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from inlayer.inspection.check_tokens import TokenKind, TokenKinds
from inlayer.inspection.findings import Finding, Severity
from inlayer.inspection.report import MAX_UNDERTRAINED, RowFacts, TrainingFacts
from inlayer.inspection.scan import RowStatistics
from inlayer.inspection.undertrained import Undertrained, find_undertrained, reference_rows
from inlayer.render.numbers import pluralize
from inlayer.shapes import Mask, Numbers

BINS = 32
MIN_CHANNELS = 16  # below this, shares of channels are meaningless
MAX_ZERO_ROWS = 0.01  # share of all rows; more are an error
MAX_NORM_RATIO = 30.0  # ratio to the median norm; published models stay below 10
MAX_DEVIATIONS = 10.0  # robust standard deviations of the log norm; both limits must be exceeded
EXPLODED_RATIO, EXPLODED_LIMIT = 100.0, 20.0  # if the largest ratio exceeds EXPLODED_RATIO, EXPLODED_LIMIT applies
MIN_RMS, MAX_RMS = 1e-5, 1e4  # RMS of the median row: 0.003 in Mistral's table, about 10 in T5's
MAX_CHANNEL_ENERGY = 0.9  # share of all energy: a few strong channels are common, but not one that dominates
MAX_DEAD_CHANNELS = 0.1
MIN_NEAR_ZERO = 0.005  # share of the values; 8% if normally distributed, almost none if the dtype is wrong
MAX_UNSEEN_RATIO = 1.1  # ratio of undertrained tokens to those that never occurred in the training text
MAX_SHARING_UNTRAINED = 0.01  # share of the ordinary tokens
MAX_SHARING = 0.005  # share of the ordinary tokens, if all of them are rare
RARE_FROM = 0.75  # position in the vocabulary, as a fraction: later tokens are rare
MAX_UNKNOWN = 0.25  # share of all rows in a table without a tokenizer; padding takes less
MIN_REPEATED_ROWS = 16  # a shorter run may be tokens that were added the same way


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
    def duplicates(self) -> Mask:
        return self.statistics.is_duplicate & self.statistics.usable

    @property
    def all_identical(self) -> bool:
        usable = int(self.statistics.usable.sum())
        return usable > 2 and usable - int(self.duplicates.sum()) == 1

    def findings_for(
        self, severity: Severity, code: str, message: str, flags: Mask, values: Numbers | None = None, advice: str = ""
    ) -> Iterator[Finding]:
        """Yield a finding about the flagged rows, or nothing if no row is flagged.

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
    low = median = high = top = None
    counts: list[int] = []
    if len(norms):
        low, median, high = float(norms.min()), float(np.median(norms)), float(norms.max())
        top = min(high, max(low, 4 * median))  # the histogram's end: 4 medians if the largest norm is an outlier
        # starting at 0, because numpy cannot divide a narrow range far from 0
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
        undertrained_rows=int(undertrained.mask.sum()),
        ordinary_rows=int(rows.tokens.has_kind(TokenKind.ORDINARY).sum()),
        reference_rows=undertrained.n_references,
        norm_threshold=undertrained.norm_threshold,
        cosine_threshold=undertrained.cosine_threshold,
    )


def _is_randomly_initialized(scan: RowStatistics) -> bool:
    """Return whether the values look like independent draws: norms vary by chance, and channel means cancel out."""
    norms, total = scan.norms[scan.usable], float(scan.channel_energy.sum())
    if len(norms) < 64 or scan.width < MIN_CHANNELS or not total > 0:
        return False
    by_chance = 1 / np.sqrt(2 * scan.width)
    spread = float(norms.std() / norms.mean())
    mean_vector_energy = float((scan.channel_means**2).sum()) / total * len(norms)  # near 1 for independent rows
    lowest = 0.8 * np.sqrt(0.4) * by_chance  # norms of uniform values spread sqrt(0.4) times as much as normal ones
    return bool(lowest < spread < 1.25 * by_chance and mean_vector_energy < 2)


# ---- findings


def row_findings(rows: ScannedRows, facts: RowFacts, training: TrainingFacts | None) -> Iterator[Finding]:
    """Yield findings about unusual rows of a table."""
    scan, tokens = rows.statistics, rows.tokens
    yield from _duplicate_findings(rows)
    yield from _undertrained_findings(rows, training)
    yield from rows.findings_for("error", "nan-rows", "{rows} NaN", scan.has_nan)
    yield from rows.findings_for("error", "inf-rows", "{rows} infinite values", scan.has_inf)
    yield from _zero_findings(rows)
    reached = tokens.has_kind(TokenKind.ORDINARY, TokenKind.UNKNOWN)
    message = "{rows} the same value in every channel"
    yield from rows.findings_for("warning", "constant-rows", message, scan.is_constant & reached, scan.norms)
    yield from _norm_findings(rows, facts.norm_median, reached)
    if facts.near_zero_share is not None and facts.near_zero_share < MIN_NEAR_ZERO:
        share = f"{facts.near_zero_share:.2%}"
        message = f"only {share} of the values are near zero, far outside the range of trained tables"
        yield Finding("warning", "unusual-value-distribution", message)
    yield from _channel_findings(facts, scan.width)
    if facts.padding_norm and facts.padding_id is not None:
        message = f"the padding row {facts.padding_id} is not zero; its norm is {facts.padding_norm:.3g}"
        yield Finding("note", "padding-row-nonzero", message, ids=(facts.padding_id,))
    if facts.randomly_initialized:
        yield Finding("note", "random-initialization", "the table looks randomly initialized and not yet trained")


def _zero_findings(rows: ScannedRows) -> Iterator[Finding]:
    scan, tokens = rows.statistics, rows.tokens
    if len(scan.ids) and scan.is_zero.all():
        part = "the whole table is" if len(scan.ids) == tokens.rows else f"all {len(scan.ids):,} rows read are"
        message = f"{part} zero; the weights were not saved or not loaded"
        yield from rows.findings_for(
            "error", "zero-rows", message, scan.is_zero, advice="Save or download the weights again."
        )
        return
    zero = scan.is_zero & tokens.has_kind(TokenKind.ORDINARY)
    message = "{rows} only zeros, although text produces these tokens; the model cannot tell them apart"
    yield from rows.findings_for("error" if zero.mean() > MAX_ZERO_ROWS else "warning", "zero-rows", message, zero)
    yield from _unknown_findings(rows, scan.is_zero & tokens.has_kind(TokenKind.UNKNOWN), "zero-rows", "only zeros")


def _undertrained_findings(rows: ScannedRows, training: TrainingFacts | None) -> Iterator[Finding]:
    undertrained, norms = rows.undertrained, rows.statistics.norms
    ordinary = int(rows.tokens.has_kind(TokenKind.ORDINARY).sum())
    found, unseen = int(undertrained.mask.sum()), 0 if training is None else training.unseen_tokens
    severity: Severity = "note"
    advice = ""
    if found <= MAX_UNSEEN_RATIO * unseen:
        advice = f"{pluralize(unseen, 'token')} never occurred in the training text. Train on more text, or use a "
        advice += "smaller vocabulary."
    elif has_many_undertrained(rows) and training is not None:
        severity = "warning"
        advice = f"Only {pluralize(unseen, 'token')} never occurred in the training text (per the training record), so "
        advice += "this is probably not the tokenizer that the table was trained with."
    elif has_many_undertrained(rows):
        advice = "Either these tokens never occurred in the training text, as in a new model trained on little text, "
        advice += "or this is not the tokenizer that the table was trained with. The files do not show which."
    several = "look undertrained: their embeddings resemble"
    verdict = "looks undertrained: its embedding resembles" if found == 1 else several
    message = f"{found:,} of {ordinary:,} ordinary tokens {verdict} those of {undertrained.n_references:,} reference "
    message += "tokens that text never produces"
    yield from rows.findings_for(severity, "undertrained-tokens", message, undertrained.mask, norms, advice)


def has_many_undertrained(rows: ScannedRows) -> bool:
    """Return whether more tokens look undertrained than in any published model."""
    return int(rows.undertrained.mask.sum()) > MAX_UNDERTRAINED * int(rows.tokens.has_kind(TokenKind.ORDINARY).sum())


def _norm_findings(rows: ScannedRows, median: float | None, is_reached: Mask) -> Iterator[Finding]:
    scan, rms = rows.statistics, rows.statistics.rms
    if median is None or rms is None:
        return
    if not MIN_RMS <= rms <= MAX_RMS:
        code = "scale-too-small" if rms < MIN_RMS else "scale-too-large"
        message = f"values of a typical row are about {rms:.1g}, far outside the range of published models"
        yield Finding("warning", code, message)
    with np.errstate(divide="ignore", invalid="ignore"):
        distance = np.log(scan.norms / median)
    usable = scan.usable
    deviation = max(1e-3, 1.4826 * float(np.median(np.abs(distance[usable] - np.median(distance[usable])))))
    outliers = scan.finite & (scan.norms > MAX_NORM_RATIO * median) & (distance > MAX_DEVIATIONS * deviation)
    reached_norms = scan.norms[is_reached & usable]
    if len(reached_norms) and reached_norms.max() > EXPLODED_RATIO * np.median(reached_norms):
        outliers |= is_reached & scan.finite & (scan.norms > EXPLODED_LIMIT * np.median(reached_norms))
    for reached in (True, False):
        group = outliers & (is_reached == reached)
        ratio = float(scan.norms[group].max(initial=0)) / median
        message = f"{{rows}} a norm up to {ratio:,.0f} times the median of {median:.3g}"
        message += "" if reached else "; ordinary text does not produce these tokens"
        yield from rows.findings_for("warning" if reached else "note", "norm-outliers", message, group, scan.norms)


def _channel_findings(facts: RowFacts, width: int) -> Iterator[Finding]:
    if width < MIN_CHANNELS:
        return
    share, dead = facts.dominant_channel_energy, facts.dead_channels
    if share is not None and share > MAX_CHANNEL_ENERGY:
        message = f"channel {facts.dominant_channel} holds {share:.1%} of the table's energy (sum of squares)"
        yield Finding("warning", "dominant-channel", message)
    if dead:
        message = f"{dead:,} of {width:,} channels {'is' if dead == 1 else 'are'} zero in every row"
        yield Finding("warning" if dead > MAX_DEAD_CHANNELS * width else "note", "dead-channels", message, dead)


# ---- duplicates


class SharedRows(NamedTuple):
    """Ordinary tokens that share their rows, either with an untrained row or among themselves."""

    flags: Mask
    with_untrained: bool
    is_fault: bool


def _duplicate_findings(rows: ScannedRows) -> Iterator[Finding]:
    scan, tokens, duplicates = rows.statistics, rows.tokens, rows.duplicates
    if rows.all_identical:
        message = "all rows are identical, so all tokens have the same embedding"
        yield from rows.findings_for("error", "all-rows-identical", message, scan.usable)
        return
    first, source, length = _repeated_rows(scan, duplicates & tokens.has_kind(TokenKind.ORDINARY, TokenKind.UNKNOWN))
    if length >= MIN_REPEATED_ROWS:
        message = f"rows {first} to {first + length - 1} repeat the rows starting at {source}"
        in_block = duplicates & (scan.ids >= first) & (scan.ids < first + length)
        yield from rows.findings_for("error", "repeated-rows", message, in_block)
        return
    for group in shared_rows(rows):
        other = "rows that look untrained" if group.with_untrained else "another row"
        message = f"{{rows}} the same values as {other}; the model cannot tell them apart"
        values = scan.first_equal.astype(np.float64)
        yield from rows.findings_for(
            "warning" if group.is_fault else "note", "duplicate-rows", message, group.flags, values
        )
    unknown = duplicates & tokens.has_kind(TokenKind.UNKNOWN)
    yield from _unknown_findings(rows, unknown, "duplicate-rows", "the same values as another row")


def shared_rows(rows: ScannedRows) -> tuple[SharedRows, SharedRows]:
    """Return ordinary tokens with equal rows: those equal to each other, and those equal to an untrained row."""
    scan, ordinary = rows.statistics, rows.tokens.has_kind(TokenKind.ORDINARY)
    shared, n_ordinary = scan.is_shared & ordinary, int(ordinary.sum())
    rare_bytes = rows.tokens.are_rare_bytes(shared)  # a byte that shares its row never occurred in training
    untrained = ~ordinary | rare_bytes | rows.undertrained.mask
    with_untrained = np.isin(scan.first_equal, scan.first_equal[untrained])
    own, borrowed = shared & ~with_untrained, shared & with_untrained
    # Tokens that share a trained row are a defect if there are only two of them, if one of them is frequent, or if
    # there are many in total.
    _, group_of, sizes = np.unique(scan.first_equal, return_inverse=True, return_counts=True)
    is_pair, is_common = sizes[group_of.reshape(-1)] == 2, scan.ids < RARE_FROM * rows.tokens.last_token
    is_fault = bool((own & (is_pair | is_common)).any()) or int(own.sum()) > MAX_SHARING * n_ordinary
    is_borrowing_fault = int((borrowed & ~rare_bytes).sum()) >= MAX_SHARING_UNTRAINED * n_ordinary
    return SharedRows(own, False, is_fault), SharedRows(borrowed, True, is_borrowing_fault)


def _unknown_findings(rows: ScannedRows, flags: Mask, code: str, values: str) -> Iterator[Finding]:
    """Yield unusual rows of a table without a tokenizer: they may be padding, unless there are too many."""
    if int(flags.sum()) > 1:  # a single one is the padding row
        message = f"{{rows}} {values}; without a tokenizer, inspect cannot tell whether text produces these ids"
        advice = "Add the tokenizer and inspect again."
        yield from rows.findings_for(
            "warning" if flags.mean() > MAX_UNKNOWN else "note", code, message, flags, None, advice
        )


def _repeated_rows(scan: RowStatistics, duplicates: Mask) -> tuple[int, int, int]:
    """Return the longest run of consecutive rows that repeats another run: the first id of each, and the length."""
    ids, sources = scan.ids[duplicates], scan.first_equal[duplicates]
    breaks = np.flatnonzero((np.diff(ids) != 1) | (np.diff(sources) != 1)) + 1
    runs = zip(np.split(ids, breaks), np.split(sources, breaks), strict=True)
    run, source = max(runs, key=lambda pair: len(pair[0]))
    return (int(run[0]), int(source[0]), len(run)) if len(run) else (0, 0, 0)
