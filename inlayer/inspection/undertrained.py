"""Rows that look never trained: like the rows that no text can reach, which nothing ever trained.

[checkpoint] files -> facts -> findings
- the idea is of Land and Bartolo, "Fishing for Magikarp" (2024): rows without a token, reserved tokens and impossible
  bytes are references, and an ordinary row that cannot be told from them was hardly seen in training
- two ways to tell. By norm: weight decay made references short. By cosine: references point to one place, which is
  where BERT's `[unused]` rows show and norms alone do not
- a way counts only where it keeps references and ordinary rows clearly apart; else it says nothing
- not here: how many such rows are too many (doctor/row_findings.py)
Checked on planted rows in tests/inspection/test_health.py and on MiniLM in tests/inspection/test_report.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from inlayer.inspection.health import RowStatistics

__all__ = ["MIN_REFERENCES", "Untrained", "find_untrained"]

MIN_REFERENCES = 8
USUAL = 0.75  # of the references; a few may be other than they seem, such as a reserved token that was put to use
SLACK = 0.1  # an ordinary row may lie so much farther out
MAX_OF_MEDIAN = 0.5  # they are short if the usual ones have less than this part of an ordinary norm
MIN_COSINE = 0.5  # they point to one place if the usual ones have more than this cosine to their mean
MIN_DISTANCE = 3.0  # and the middle ordinary row lies so many times as far from it
MAX_SUSPECTS = 0.5  # of the ordinary rows: past that the way does not tell them apart


@dataclass(frozen=True, kw_only=True, eq=False)
class Untrained:
    """`rows` are places in the statistics. A limit is None where its way could not be trusted."""

    references: int
    norm_limit: float | None
    cosine_limit: float | None
    rows: npt.NDArray[np.int64]


def find_untrained(
    statistics: RowStatistics, is_reference: npt.NDArray[np.bool_], is_ordinary: npt.NDArray[np.bool_]
) -> Untrained:
    """Ordinary rows that look like the references."""
    usable = statistics.finite & ~statistics.is_zero
    references, ordinary = np.flatnonzero(is_reference & usable), np.flatnonzero(is_ordinary & usable)
    nothing = Untrained(references=len(references), norm_limit=None, cosine_limit=None, rows=np.empty(0, np.int64))
    if len(references) < MIN_REFERENCES or not len(ordinary):
        return nothing
    norm_limit = _norm_limit(statistics.norms[references], statistics.norms[ordinary])
    suspects = np.zeros(len(ordinary), np.bool_)
    if norm_limit is not None:
        suspects |= statistics.norms[ordinary] <= norm_limit
    cosine_limit = None
    if statistics.cosines is not None:
        cosine_limit = _cosine_limit(statistics.cosines[references], statistics.cosines[ordinary])
        if cosine_limit is not None:
            suspects |= statistics.cosines[ordinary] >= cosine_limit
    return Untrained(
        references=len(references), norm_limit=norm_limit, cosine_limit=cosine_limit, rows=ordinary[suspects]
    )


def _norm_limit(references: npt.NDArray[np.float64], ordinary: npt.NDArray[np.float64]) -> float | None:
    limit = (1 + SLACK) * float(np.quantile(references, USUAL))
    apart = limit < MAX_OF_MEDIAN * float(np.median(ordinary))
    return limit if apart and float((ordinary <= limit).mean()) < MAX_SUSPECTS else None


def _cosine_limit(references: npt.NDArray[np.float64], ordinary: npt.NDArray[np.float64]) -> float | None:
    limit = 1 - (1 + SLACK) * (1 - float(np.quantile(references, 1 - USUAL)))
    apart = limit > MIN_COSINE and 1 - float(np.median(ordinary)) > MIN_DISTANCE * (1 - limit)
    return limit if apart and float((ordinary >= limit).mean()) < MAX_SUSPECTS else None
