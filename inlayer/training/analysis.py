"""Comparison of a table before and after training: nearest neighbors of some tokens, and how much rows changed.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- tokens to show: frequent ones that a person can judge, whole words first, with frequencies spread on a log scale: the
  most frequent words alone ("the", "of") would say little
- change: direction, distance and norm of rows, by how often their token occurs in the text. Tokens that never occur are
  a group of their own: a tied head moves their rows, an untied table does not
- the padding row is left out; a zero row has no direction, so it has no cosine; values that are not finite become None
- rows are read in blocks, in float64: this works for tables of any size and for diverged runs
- elsewhere: the course of training (plot.py), presentation (report/)
Tested against plain loops in tests/training/test_analysis.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
from torch import Tensor

from inlayer.errors import InlayerError, InputError, ShapeError
from inlayer.neighbors import nearest
from inlayer.tokenizers import Tokenizer
from inlayer.tokenizers.base import token_label

__all__ = ["RowChange", "TableComparison", "TokenComparison", "TokenNeighbor", "compare_tables"]

BLOCK_VALUES = 2**22  # values of a table read at once
CANDIDATES = 10  # candidates per shown token
MIN_LETTERS = 3
SENTENCEPIECE_SPACE = "▁"
QUARTERS = ("most frequent quarter", "second quarter", "third quarter", "rarest quarter")
UNSEEN = "never seen"
ALL = "all rows"

Ids = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TokenNeighbor:
    """A token whose row is near another one."""

    id: int
    token: str
    cosine: float


@dataclass(frozen=True, kw_only=True)
class TokenComparison:
    """A token, its count in the training text, and its nearest neighbors before and after training."""

    id: int
    token: str
    count: int
    before: tuple[TokenNeighbor, ...]
    after: tuple[TokenNeighbor, ...]


@dataclass(frozen=True, kw_only=True)
class RowChange:
    """Change of a group of rows, as means over rows; None where a value is not finite.

    share     fraction of the training text that the group's tokens make up
    cosine    between a row before and after: 1 if it kept its direction
    distance  norm of the difference, relative to the norm before
    """

    name: str
    rows: int
    share: float
    cosine: float | None
    distance: float | None
    norm_before: float | None
    norm_after: float | None


@dataclass(frozen=True, kw_only=True)
class TableComparison:
    """What training changed in a table.

    groups             all rows, then rows by frequency, most frequent first; empty groups are left out
    mean_vector_ratio  norm of the mean row / mean norm of the rows: 0 if rows surround the origin, 1 if all are equal
    nonfinite_rows     rows with NaN or infinity after training
    """

    tokens: tuple[TokenComparison, ...]
    groups: tuple[RowChange, ...]
    mean_vector_ratio_before: float | None
    mean_vector_ratio_after: float | None
    nonfinite_rows: int


@torch.no_grad()
def compare_tables(
    before_VD: Float[Tensor, "V D"],
    after_VD: Float[Tensor, "V D"],
    counts_V: npt.NDArray[Any] | Tensor,
    tokenizer: Tokenizer,
    *,
    padding_idx: int | None = None,
    tokens: int = 8,
    k: int = 5,
) -> TableComparison:
    """Compare a table before and after training, with `k` neighbors of each of `tokens` tokens.

    `counts_V` has the occurrences of each id in the training text; rows beyond its end never occurred.
    """
    rows = len(before_VD)
    if before_VD.shape != after_VD.shape:
        raise ShapeError(
            f"the table has shape {tuple(before_VD.shape)} before and {tuple(after_VD.shape)} after; was it resized?"
        )
    given = counts_V.cpu().numpy() if isinstance(counts_V, Tensor) else counts_V
    if given.ndim != 1 or len(given) > rows:
        raise ShapeError(f"counts has shape {given.shape}; expected one number for each of the {rows:,} rows")
    if padding_idx is not None and not 0 <= padding_idx < rows:
        raise InputError(f"padding_idx is {padding_idx}; the table has rows 0..{rows - 1}")
    if tokens < 0 or k < 0:
        raise InputError(f"tokens is {tokens} and k is {k}; they must not be negative")
    seen_V = np.zeros(rows, np.int64)
    seen_V[: len(given)] = given
    kept_V = np.ones(rows, bool)
    if padding_idx is not None:
        kept_V[padding_idx] = False
    before_VD, after_VD = before_VD.detach().cpu(), after_VD.detach().cpu()
    measures = _RowMeasures(before_VD, after_VD)
    return TableComparison(
        tokens=tuple(
            TokenComparison(
                id=token_id,
                token=token_label(tokenizer, token_id),
                count=int(seen_V[token_id]),
                before=_neighbors(before_VD, token_id, tokenizer, k),
                after=_neighbors(after_VD, token_id, tokenizer, k),
            )
            for token_id in _choose(seen_V * kept_V, tokenizer, tokens)
        ),
        groups=tuple(measures.change(name, ids, seen_V) for name, ids in _groups(seen_V, kept_V)),
        mean_vector_ratio_before=_mean_vector_ratio(before_VD, measures.norm_before, kept_V),
        mean_vector_ratio_after=_mean_vector_ratio(after_VD, measures.norm_after, kept_V),
        nonfinite_rows=int(np.count_nonzero(~np.isfinite(measures.norm_after[kept_V]))),
    )


# ---- tokens


def _choose(counts_V: Ids, tokenizer: Tokenizer, wanted: int) -> list[int]:
    """Choose tokens of the best kind available, their frequency ranks spread on a log scale; then of the next kind."""
    special, most = tokenizer.special_ids, CANDIDATES * wanted
    kinds: list[list[int]] = [[], [], [], []]
    for token_id in np.argsort(-counts_V, kind="stable")[: np.count_nonzero(counts_V)].tolist():
        if token_id not in special:
            kinds[_kind(tokenizer, token_id)].append(token_id)
        if len(kinds[0]) == most:
            break
    chosen: list[int] = []
    for candidates in kinds:
        chosen += _spread(candidates[:most], wanted - len(chosen))
    return sorted(chosen, key=lambda token_id: (-counts_V[token_id], token_id))


def _kind(tokenizer: Tokenizer, token_id: int) -> int:
    """0: a word with a leading space, 1: a word, 2: letters, 3: anything else."""
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


def _spread(candidates: list[int], wanted: int) -> list[int]:
    """Take `wanted` candidates: the first ones, then at growing distances, up to the last one."""
    if wanted >= len(candidates):
        return candidates
    ranks: list[int] = []
    for number in range(wanted):
        rank = round(len(candidates) ** (number / max(1, wanted - 1))) - 1
        ranks.append(max(rank, ranks[-1] + 1 if ranks else 0))
    return [candidates[min(rank, len(candidates) - wanted + number)] for number, rank in enumerate(ranks)]


def _neighbors(table_VD: Tensor, token_id: int, tokenizer: Tokenizer, k: int) -> tuple[TokenNeighbor, ...]:
    found = nearest(table_VD[token_id], _blocks(table_VD), k, exclude=token_id)
    return tuple(TokenNeighbor(id=other, token=token_label(tokenizer, other), cosine=cosine) for other, cosine in found)


# ---- rows


class _RowMeasures:
    """Norms, cosine and relative distance of every row."""

    def __init__(self, before_VD: Tensor, after_VD: Tensor) -> None:
        blocks = []
        for (_, old_ND), (_, new_ND) in zip(_blocks(before_VD), _blocks(after_VD), strict=True):
            old, new = old_ND.double(), new_ND.double()
            norm_old, norm_new = old.norm(dim=1), new.norm(dim=1)
            cosine = ((old / norm_old[:, None]) * (new / norm_new[:, None])).sum(dim=1).clamp(-1, 1)
            blocks.append(torch.stack((norm_old, norm_new, cosine, (new - old).norm(dim=1) / norm_old)))
        values: Values = torch.cat(blocks, dim=1).numpy() if blocks else np.empty((4, 0))
        self.norm_before, self.norm_after, self.cosine, self.distance = values[0], values[1], values[2], values[3]

    def change(self, name: str, ids: Ids, counts_V: Ids) -> RowChange:
        return RowChange(
            name=name,
            rows=len(ids),
            share=float(counts_V[ids].sum() / max(1, counts_V.sum())),
            cosine=_mean(self.cosine[ids]),
            distance=_mean(self.distance[ids]),
            norm_before=_mean(self.norm_before[ids]),
            norm_after=_mean(self.norm_after[ids]),
        )


def _groups(counts_V: Ids, kept_V: Mask) -> Iterator[tuple[str, Ids]]:
    order = np.argsort(-counts_V, kind="stable")
    order = order[kept_V[order]]
    seen = int(np.count_nonzero(counts_V[order]))
    quarters = zip(QUARTERS, np.array_split(order[:seen], len(QUARTERS)), strict=True)
    for name, ids in ((ALL, order), *quarters, (UNSEEN, order[seen:])):
        if len(ids):
            yield name, ids


def _mean_vector_ratio(table_VD: Tensor, norms_V: Values, kept_V: Mask) -> float | None:
    total_D = torch.zeros(table_VD.shape[1], dtype=torch.float64)
    for start, block_ND in _blocks(table_VD):
        total_D += block_ND[torch.from_numpy(kept_V[start : start + len(block_ND)])].double().sum(dim=0)
    total_norm = float(norms_V[kept_V].sum())
    ratio = float(total_D.norm()) / total_norm if total_norm else math.nan
    return ratio if math.isfinite(ratio) else None


def _blocks(table_VD: Tensor) -> Iterator[tuple[int, Tensor]]:
    rows = max(1, BLOCK_VALUES // max(1, table_VD.shape[1]))
    yield from ((start, table_VD[start : start + rows]) for start in range(0, len(table_VD), rows))


def _mean(values: Values) -> float | None:
    """Mean of the finite values; None if there are none."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None
