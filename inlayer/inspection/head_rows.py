"""The rows of a head that is not the table: zero, equal or out of scale, they spoil every guess.

[checkpoint] files -> facts -> [findings]
- alarms are about rows of tokens that text holds, as for the table: what is past the tokenizer is never guessed
- the scale of a head is compared with the table's, from which a healthy one may be far: nanochat's head starts at 0.001
  beside a table of 1, Mistral's table has a tenth of its head
- not here: NaN and infinity, the tie (doctor/tie.py)
Checked with damaged copies in tests/inspection/test_faults.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from inlayer.inspection.copies import MAX_UNEXPLAINED, rows_have, shared_rows
from inlayer.inspection.report import Finding
from inlayer.inspection.rows import Rows
from inlayer.inspection.survey import Kind

__all__ = ["head_row_findings"]

OUT_OF_SCALE = 100.0  # times the table's values, or its part
LARGEST_USUAL, SMALLEST_USUAL = 1.0, 1e-4  # values of a head that need no comparison: T5's start at 1
MANY = 0.01  # of the rows
ADVICE = "fetch the file that holds the head again; if it is a fresh result, was the head saved, and resized?"


def head_row_findings(head: Rows, table: Rows) -> Iterator[Finding]:
    """What of the rows of a head is a fault."""
    yield from _zero_rows(head)
    yield from _equal_rows(head)
    rms, usual = head.rms, table.rms
    if rms is None or usual is None:
        return
    large, small = rms > max(LARGEST_USUAL, OUT_OF_SCALE * usual), rms < min(SMALLEST_USUAL, usual / OUT_OF_SCALE)
    if large or small:
        yield Finding(
            severity="warning",
            code="head-out-of-scale",
            meaning=f"the values of a usual row of the head are about {rms:.1g}, those of the table {usual:.1g}",
            advice="was a scale applied twice, or a quantized head read without its scale?",
        )


def _zero_rows(head: Rows) -> Iterator[Finding]:
    zero, survey = head.statistics.is_zero, head.survey
    reached = zero & survey.are(Kind.ORDINARY)
    unknown = zero & survey.are(Kind.UNKNOWN)
    if int(unknown.sum()) > MAX_UNEXPLAINED * len(zero):
        reached |= unknown
    count = int(reached.sum())
    if count:
        yield Finding(
            severity="error" if count > MANY * len(zero) else "warning",
            code="head-rows-zero",
            meaning=f"{rows_have(count)} nothing but zeros in the head: the logits of their tokens are always zero",
            advice=ADVICE,
            count=count,
            examples=head.examples(reached),
        )


def _equal_rows(head: Rows) -> Iterator[Finding]:
    copied, usable = head.copied, len(head.usable)
    alike = copied & head.survey.are(Kind.UNKNOWN)
    everything = usable > 2 and usable - int(copied.sum()) == 1
    if everything:
        alike = copied
    elif int(alike.sum()) <= MAX_UNEXPLAINED * len(alike):
        alike &= False
        for group in shared_rows(head):
            if group.alarming:
                alike |= group.rows
    count = int(alike.sum())
    if count:
        yield Finding(
            severity="error" if everything else "warning",
            code="head-rows-equal",
            meaning=f"{rows_have(count)} the values of another in the head: their tokens always get the same logit",
            advice=ADVICE,
            count=count,
            examples=head.examples(alike),
        )
