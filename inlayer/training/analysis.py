"""Compares a table before and after training: nearest neighbors of some tokens, and how much the rows changed.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- the tokens shown are frequent tokens that a person can judge, starting with whole words. Their frequencies are spread
  on a log scale, because the most frequent words ("the", "of") would not be informative enough
- the changes in direction, distance, and norm are grouped by how often a row's token occurs in the text. Tokens that
  never occur are a separate group: a tied head moves their rows, and an untied table does not
- the padding row is excluded, a zero row has no cosine similarity, and non-finite values become None
- rows are read in blocks and compared in float64, so tables can have any size, and runs may have diverged
- see also: the values during training (plot.py), presentation (run_report.py)
Tested against plain loops in tests/training/test_analysis.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from inlayer.errors import InlayerError
from inlayer.facts_base import Facts
from inlayer.geometry.nearest import nearest_to_row
from inlayer.shapes import Ids, Numbers
from inlayer.tables import StoredTable
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.base import token_label

BLOCK_VALUES = 2**22  # table values to read at a time
CANDIDATES = 10  # candidates per shown token
MIN_LETTERS = 3
SENTENCEPIECE_SPACE = "▁"
QUARTERS = ("most frequent quarter", "second quarter", "third quarter", "rarest quarter")
UNSEEN = "never seen"
ALL = "all rows"
MEASURES = ("norm_before", "norm_after", "cosine", "distance")  # fields of RowChange


class TokenNeighbor(Facts):
    id: int
    token: str
    cosine: float


class TokenComparison(Facts):
    id: int
    token: str
    count: int
    before: tuple[TokenNeighbor, ...]
    after: tuple[TokenNeighbor, ...]


class RowChange(Facts):
    """Change of a group of rows, as means over its rows. A value is None if it is not finite for any row.

    share     fraction of the training tokens that belong to the group
    cosine    between each row before and after training: 1 if the direction is unchanged
    distance  norm of the difference, relative to the norm before
    """

    name: str
    rows: int
    share: float
    cosine: float | None
    distance: float | None
    norm_before: float | None
    norm_after: float | None


class TableComparison(Facts):
    """Changes that training made to a table.

    groups             all rows, then rows by frequency, most frequent first; empty groups are omitted
    mean_vector_ratio  norm of the mean vector / mean row norm: 0 if rows surround the origin, 1 if they are all equal
    nonfinite_rows     rows with NaN or infinity after training
    """

    tokens: tuple[TokenComparison, ...]
    groups: tuple[RowChange, ...]
    mean_vector_ratio_before: float | None
    mean_vector_ratio_after: float | None
    nonfinite_rows: int


@torch.no_grad()
def compare_before_and_after(
    before_VD: Float[Tensor, "V D"],
    after_VD: Float[Tensor, "V D"],
    counts_V: Ids,
    tokenizer: Tokenizer,
    *,
    padding_idx: int | None = None,
    tokens: int = 8,
    k: int = 5,
) -> TableComparison:
    """Compare a table before and after training, with `k` neighbors of each of `tokens` tokens.

    `counts_V` has the number of times that each id occurs in the training text.
    """
    before_VD, after_VD = before_VD.detach().cpu(), after_VD.detach().cpu()
    row_ids = [token_id for token_id in range(len(before_VD)) if token_id != padding_idx]
    measures, ratios = _measure_rows(before_VD[row_ids], after_VD[row_ids])
    before, after = (StoredTable.from_array(table_VD.float().numpy()) for table_VD in (before_VD, after_VD))
    chosen = _choose(counts_V, tokenizer, tokens, excluded={*tokenizer.special_ids, padding_idx})
    return TableComparison(
        tokens=tuple(
            TokenComparison(
                id=token_id,
                token=token_label(tokenizer, token_id),
                count=int(counts_V[token_id]),
                before=_neighbors(before, token_id, tokenizer, k),
                after=_neighbors(after, token_id, tokenizer, k),
            )
            for token_id in chosen
        ),
        groups=tuple(_changes(measures, counts_V[row_ids], int(counts_V.sum()))),
        mean_vector_ratio_before=ratios[0] if math.isfinite(ratios[0]) else None,
        mean_vector_ratio_after=ratios[1] if math.isfinite(ratios[1]) else None,
        nonfinite_rows=int(np.count_nonzero(~np.isfinite(measures[1]))),
    )


# ---- tokens


def _choose(counts_V: Ids, tokenizer: Tokenizer, count: int, *, excluded: set[int | None]) -> list[int]:
    """Choose `count` tokens, preferring whole words, log-spaced by frequency rank."""
    max_candidates = CANDIDATES * count
    kinds: list[list[int]] = [[], [], [], []]
    for token_id in np.argsort(-counts_V, kind="stable")[: np.count_nonzero(counts_V)].tolist():
        if token_id not in excluded:
            kinds[_kind(tokenizer, token_id)].append(token_id)
        if len(kinds[0]) == max_candidates:
            break
    chosen: list[int] = []
    for candidates in kinds:
        chosen += _spread(candidates[:max_candidates], count - len(chosen))
    return sorted(chosen, key=lambda token_id: (-counts_V[token_id], token_id))


def _kind(tokenizer: Tokenizer, token_id: int) -> int:
    """Return 0 for a word with a leading space, 1 for a word, 2 for letters, and 3 for anything else."""
    try:
        text = tokenizer.token_bytes(token_id).decode()
    except (UnicodeDecodeError, InlayerError):  # part of a character, or an id without a token
        return 3
    letters = text.removeprefix(" ").removeprefix(SENTENCEPIECE_SPACE)
    if not letters.isalpha():
        return 3
    if len(letters) < MIN_LETTERS:
        return 2
    return 0 if letters != text else 1


def _spread(candidates: list[int], count: int) -> list[int]:
    """Take `count` candidates: the first few, then others at growing distances, up to the last one."""
    if count >= len(candidates):
        return candidates
    gaps = np.geomspace(1, len(candidates) - count + 1, count).round().astype(int) - 1
    return [candidates[index + gap] for index, gap in enumerate(gaps.tolist())]


def _neighbors(table: StoredTable, token_id: int, tokenizer: Tokenizer, k: int) -> tuple[TokenNeighbor, ...]:
    near = nearest_to_row(table, token_id, k)
    return tuple(
        TokenNeighbor(id=near_id, token=token_label(tokenizer, near_id), cosine=cosine) for near_id, cosine in near
    )


# ---- rows


def _measure_rows(before_ND: Tensor, after_ND: Tensor) -> tuple[Numbers, list[float]]:
    """Return each row's values (4, N), in the order of MEASURES, and both mean-vector ratios."""
    measured, sums_2D = [], torch.zeros(2, before_ND.shape[1], dtype=torch.float64)
    rows = max(1, BLOCK_VALUES // before_ND.shape[1])
    for pair in zip(torch.split(before_ND, rows), torch.split(after_ND, rows), strict=True):
        old, new = (block.double() for block in pair)
        norm_old, norm_new = old.norm(dim=1), new.norm(dim=1)
        cosine = ((old / norm_old[:, None]) * (new / norm_new[:, None])).sum(dim=1).clamp(-1, 1)
        measured.append(torch.stack((norm_old, norm_new, cosine, (new - old).norm(dim=1) / norm_old)))
        sums_2D += torch.stack((old.sum(dim=0), new.sum(dim=0)))
    measures = torch.cat(measured, dim=1)
    return measures.numpy(), (sums_2D.norm(dim=1) / measures[:2].sum(dim=1)).tolist()


def _changes(measures: Numbers, counts_N: Ids, total: int) -> Iterator[RowChange]:
    """Yield the changes of all rows, and of groups of them by how often their tokens occur."""
    order = np.argsort(-counts_N, kind="stable")
    seen = int(np.count_nonzero(counts_N))
    quarters = zip(QUARTERS, np.array_split(order[:seen], len(QUARTERS)), strict=True)
    for name, rows in ((ALL, order), *quarters, (UNSEEN, order[seen:])):
        if len(rows):
            finite = [values[np.isfinite(values)] for values in measures[:, rows]]
            means = [float(values.mean()) if len(values) else None for values in finite]
            share = float(counts_N[rows].sum() / max(1, total))
            yield RowChange(name=name, rows=len(rows), share=share, **dict(zip(MEASURES, means, strict=True)))
