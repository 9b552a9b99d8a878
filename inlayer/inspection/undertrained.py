"""Undertrained rows: they resemble rows that training never reached.

source -> Model -> [facts] -> findings -> Report
- the references are rows of tokens that text never produces: rows without a token, reserved tokens, and impossible
  bytes. The method is from Land and Bartolo, "Fishing for Magikarp" (2024)
- there are two criteria. Norm: weight decay shrinks undertrained rows. Cosine similarity: they share a direction, which
  reveals BERT's `[unused]` rows where norms do not. A criterion is used only if it clearly separates references from
  ordinary rows
- rows without a token are not references if a resize added them: their norms and directions differ from the others'
- see also: reading rows (scan.py), kinds of tokens (check_tokens.py), the finding itself (check_rows.py)
Tested on planted rows in tests/inspection/test_scan.py and on MiniLM in tests/inspection/test_report.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from inlayer.inspection.check_tokens import TokenKind, TokenKinds
from inlayer.inspection.report import MIN_REFERENCES
from inlayer.inspection.scan import MAX_SAMPLED, RowStatistics, mean_direction, scan_rows, spread
from inlayer.render.progress_bar import Progress
from inlayer.shapes import Ids, Mask, Numbers
from inlayer.tables import StoredTable

REFERENCE_QUANTILE = 0.75  # a few references may be trained after all, such as a reserved token that came into use
TOLERANCE = 0.1  # margin by which an ordinary row may exceed the references
MAX_REFERENCE_NORM = 0.5  # norm ratio of references to ordinary rows
MIN_COSINE = 0.5  # cosine of references to their mean direction
MAX_DISTANCE_RATIO = 1 / 3  # ratio of distances (1 - cosine) of references to ordinary rows
MAX_RATIO = 2.0  # ratio of the norms of references with and without a token
MAX_REFERENCES = 2048  # reference tokens whose mean direction is computed
TOKEN_REFERENCES = (TokenKind.RESERVED, TokenKind.UNREACHABLE)  # references that have a token
MAX_MATCHES = 0.5  # share of the ordinary rows: beyond this, a criterion does not separate them


class Undertrained(NamedTuple):
    """The undertrained rows as a mask. A threshold is None if its criterion was not used."""

    mask: Mask
    n_references: int
    norm_threshold: float | None = None
    cosine_threshold: float | None = None


def reference_rows(statistics: RowStatistics, tokens: TokenKinds) -> Mask:
    """Flag rows that were never trained: no text reaches them, or special tokens whose row still equals another."""
    return tokens.has_kind(*tokens.reference_kinds) | (tokens.has_kind(TokenKind.SPECIAL) & statistics.is_shared)


def drop_resized_references(table: StoredTable, tokens: TokenKinds) -> TokenKinds:
    """Return the tokens without references that a later resize added, if these rows differ from the others."""
    old, new = (tokens.ids[tokens.has_kind(*kinds)] for kinds in (TOKEN_REFERENCES, (TokenKind.MISSING,)))
    if min(len(old), len(new)) < MIN_REFERENCES:
        return tokens
    direction = mean_direction(table, spread(old, MAX_SAMPLED))
    old_rows, new_rows = (scan_rows(table, spread(ids, MAX_SAMPLED), direction) for ids in (old, new))
    norm, new_norm = np.median(old_rows.norms), np.median(new_rows.norms)
    apart = direction is not None and np.median(old_rows.cosines) >= MIN_COSINE > np.median(new_rows.cosines)  # type: ignore
    is_similar = not apart and norm / MAX_RATIO <= new_norm <= norm * MAX_RATIO
    return tokens if is_similar else replace(tokens, reference_kinds=TOKEN_REFERENCES)


def scan_with_references(table: StoredTable, tokens: TokenKinds, ids: Ids | None, progress: Progress) -> RowStatistics:
    """Scan the table, comparing every row with the mean direction of the reference tokens.

    If text can produce almost every token, special tokens with equal rows serve as references: they are found in a
    first pass and compared in a second.
    """
    unreached = tokens.ids[tokens.has_kind(*tokens.reference_kinds)]
    scan = scan_rows(table, ids, mean_direction(table, spread(unreached, MAX_REFERENCES)), progress)
    if len(scan.ids) < len(tokens.ids):  # reading was stopped
        return scan
    references = tokens.ids[reference_rows(scan, tokens)]
    if len(unreached) < MIN_REFERENCES <= len(references):
        scan = scan_rows(table, ids, mean_direction(table, spread(references, MAX_REFERENCES)), progress)
    return scan


def find_undertrained(statistics: RowStatistics, is_reference: Mask, is_ordinary: Mask) -> Undertrained:
    """Find ordinary rows that look like the rows of reference tokens."""
    references, ordinary = is_reference & statistics.usable, is_ordinary & statistics.usable
    n_references, found = int(references.sum()), np.zeros(len(references), np.bool_)
    if n_references < MIN_REFERENCES or not ordinary.any():
        return Undertrained(found, n_references)
    norms, cosines, min_cosine = statistics.norms, statistics.cosines, None
    max_norm = _threshold(norms[references], norms[ordinary], MAX_REFERENCE_NORM)
    if max_norm is not None:
        found |= norms <= max_norm
    if cosines is not None:
        max_distance = _threshold(1 - cosines[references], 1 - cosines[ordinary], MAX_DISTANCE_RATIO)
        if max_distance is not None and max_distance < 1 - MIN_COSINE:
            min_cosine = 1 - max_distance
            found |= cosines >= min_cosine
    return Undertrained(ordinary & found, n_references, max_norm, min_cosine)


def _threshold(references: Numbers, ordinary: Numbers, max_ratio: float) -> float | None:
    """Return the largest value of a reference, ignoring outliers, or None if many ordinary values are that small."""
    threshold = (1 + TOLERANCE) * float(np.quantile(references, REFERENCE_QUANTILE))
    separate = threshold < max_ratio * float(np.median(ordinary))
    return threshold if separate and float((ordinary <= threshold).mean()) < MAX_MATCHES else None
