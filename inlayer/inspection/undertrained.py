"""Undertrained rows, found by what they have in common with rows that training never reached.

source -> Model -> [facts] -> findings -> Report
- undertrained rows resemble those of reference tokens, which text never produces: rows without a token, reserved
  tokens and impossible bytes. The method is from Land and Bartolo, "Fishing for Magikarp" (2024)
- there are two criteria. Norm: weight decay shrinks their rows. Cosine similarity: their rows share a direction, which
  reveals BERT's `[unused]` rows where norms do not. A criterion is used only if it clearly separates references from
  ordinary rows
- see also: reading rows (scan.py), classifying ids (token_kinds.py), both together (rows.py)
Tested on planted rows in tests/inspection/test_scan.py and on MiniLM in tests/inspection/test_report.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from inlayer.inspection.scan import Flags, Numbers, RowStatistics
from inlayer.inspection.token_kinds import TokenKind, TokenKinds

MIN_REFERENCES = 8
REFERENCE_QUANTILE = 0.75  # a few references may be trained after all, such as a reserved token that came into use
TOLERANCE = 0.1  # an ordinary row may be this much farther out than the references
MAX_NORM_RATIO = 0.5  # norm ratio of references to ordinary rows
MIN_COSINE = 0.5  # cosine of references to their mean direction
MIN_DISTANCE_RATIO = 3.0  # distance (1 - cosine) of the median ordinary row, relative to references
MAX_MATCHES = 0.5  # share of the ordinary rows: beyond this, a criterion does not separate them


class Undertrained(NamedTuple):
    """Flags of the undertrained rows. A threshold is None if its criterion was not used."""

    rows: Flags
    references: int
    norm_threshold: float | None = None
    cosine_threshold: float | None = None


def reference_rows(statistics: RowStatistics, tokens: TokenKinds) -> Flags:
    """Flag rows that were never trained: no text reaches them, or they are special and still equal another row."""
    return tokens.has_kind(*tokens.reference_kinds) | (tokens.has_kind(TokenKind.SPECIAL) & statistics.is_shared)


def find_undertrained(statistics: RowStatistics, is_reference: Flags, is_ordinary: Flags) -> Undertrained:
    """Find ordinary rows that look like the rows of reference tokens."""
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
