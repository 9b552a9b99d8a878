"""What was learned: a table before training and after it, told by a few words' neighbors and by how far rows moved.

text -> ids -> [rows] -> (+ positions) -> hidden states -> [decoder] -> head -> logits
- words: frequent tokens that a person can judge, whole words first. The most frequent ones, then ever rarer ones: "the"
  alone would say little
- drift: how far rows turned, moved and grew, by how often their token stands in the text. Tokens that were never seen
  are a group of their own: a tied table's rows are pushed about by the head all the same, an untied one's are not
- the padding row is no part of it; a row of zeros points nowhere, so it has no cosine; what is no number is None
- rows are read block by block, in float64: a table of any size, and of any diverged run, passes through
- not here: the course of the training (training/plot.py), how it is shown (training/report.py)
Checked against plain loops in tests/training/test_analysis.py.
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
from inlayer.tokenizers.names import spelled

__all__ = ["Drift", "Learned", "Neighbor", "Word", "what_was_learned"]

BLOCK_VALUES = 2**22  # of a table, read at once
POOL = 10  # words are chosen among the so many times more frequent ones
MIN_LETTERS = 3
BLANK = "▁"  # sentencepiece's space
QUARTERS = ("most frequent quarter", "second quarter", "third quarter", "rarest quarter")
NEVER = "never seen"
ALL = "all rows"


@dataclass(frozen=True, kw_only=True)
class Neighbor:
    """A row near another one."""

    id: int
    label: str
    cosine: float


@dataclass(frozen=True, kw_only=True)
class Word:
    """A token, how often it stands in the training text, and the rows nearest to its own."""

    id: int
    label: str
    count: int
    before: tuple[Neighbor, ...]
    after: tuple[Neighbor, ...]


@dataclass(frozen=True, kw_only=True)
class Drift:
    """What became of the rows of some tokens, as means over rows; None where there is no such number.

    least, most  how often the tokens stand in the training text
    share        of all tokens of the training text
    cosine       of a row before and after: 1 where it kept its direction
    movement     length of the way from before to after, in lengths of the row before
    norm_before  length of a row
    """

    name: str
    rows: int
    least: int
    most: int
    share: float
    cosine: float | None
    movement: float | None
    norm_before: float | None
    norm_after: float | None


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What a table learned.

    drift           all rows together, then by frequency, the most frequent ones first; groups without rows are left out
    mean_row_ratio  length of the mean of all rows / mean length of a row: 0 where rows surround the origin, 1 where all
                    are the same
    broken          rows that hold NaN or infinity afterwards
    """

    words: tuple[Word, ...]
    drift: tuple[Drift, ...]
    mean_row_ratio_before: float | None
    mean_row_ratio_after: float | None
    broken: int


@torch.no_grad()
def what_was_learned(
    before_VD: Float[Tensor, "V D"],
    after_VD: Float[Tensor, "V D"],
    counts_V: npt.NDArray[Any] | Tensor,
    tokenizer: Tokenizer,
    *,
    padding_idx: int | None = None,
    words: int = 8,
    k: int = 5,
) -> Learned:
    """Compare a table with itself, earlier. `counts_V` says how often each id stands in the training text; rows past
    its end (padding, rows added for speed) were never seen. `words` tokens are shown with `k` neighbors each.
    """
    rows = len(before_VD)
    if before_VD.shape != after_VD.shape:
        raise ShapeError(
            f"before has shape {tuple(before_VD.shape)} and after {tuple(after_VD.shape)}; they are one table, earlier "
            "and later: was it resized in between?"
        )
    given = counts_V.cpu().numpy() if isinstance(counts_V, Tensor) else counts_V
    if given.ndim != 1 or len(given) > rows:
        raise ShapeError(f"counts has shape {given.shape}; it has one number for each of the table's {rows:,} rows")
    if padding_idx is not None and not 0 <= padding_idx < rows:
        raise InputError(f"padding_idx is {padding_idx}; the table has the rows 0..{rows - 1}")
    if words < 0 or k < 0:
        raise InputError(f"words is {words} and k is {k}; so many cannot be shown")
    seen_V = np.zeros(rows, np.int64)
    seen_V[: len(given)] = given
    kept_V = np.ones(rows, bool)
    if padding_idx is not None:
        kept_V[padding_idx] = False
    before_VD, after_VD = before_VD.detach().cpu(), after_VD.detach().cpu()
    measures = _Measures(before_VD, after_VD)
    return Learned(
        words=tuple(
            Word(
                id=token_id,
                label=spelled(tokenizer, token_id),
                count=int(seen_V[token_id]),
                before=_neighbors(before_VD, token_id, tokenizer, k),
                after=_neighbors(after_VD, token_id, tokenizer, k),
            )
            for token_id in _choose(seen_V * kept_V, tokenizer, words)
        ),
        drift=tuple(measures.drift(name, ids, seen_V) for name, ids in _groups(seen_V, kept_V)),
        mean_row_ratio_before=_mean_row_ratio(before_VD, measures.norm_before, kept_V),
        mean_row_ratio_after=_mean_row_ratio(after_VD, measures.norm_after, kept_V),
        broken=int(np.count_nonzero(~np.isfinite(measures.norm_after[kept_V]))),
    )


# ---- words


def _choose(counts_V: npt.NDArray[np.int64], tokenizer: Tokenizer, words: int) -> list[int]:
    """Tokens of the best kind there is, their ranks by frequency about evenly apart on a scale of logarithms; tokens of
    the next best kind where they are too few.
    """
    special, most = tokenizer.special_ids, POOL * words
    kinds: list[list[int]] = [[], [], [], []]
    for token_id in np.argsort(-counts_V, kind="stable")[: np.count_nonzero(counts_V)].tolist():
        if token_id not in special:
            kinds[_kind(tokenizer, token_id)].append(token_id)
        if len(kinds[0]) == most:
            break
    chosen: list[int] = []
    for pool in kinds:
        chosen += _spread(pool[:most], words - len(chosen))
    return sorted(chosen, key=lambda token_id: (-counts_V[token_id], token_id))


def _kind(tokenizer: Tokenizer, token_id: int) -> int:
    """0: a word with the space before it, 1: a word, 2: letters, 3: anything."""
    try:
        text = tokenizer.token_bytes(token_id).decode()
    except (UnicodeDecodeError, InlayerError):  # part of a character, or a hole of the vocabulary
        return 3
    letters = text.removeprefix(" ").removeprefix(BLANK)
    if not letters.isalpha():
        return 3
    if len(letters) < MIN_LETTERS:
        return 2
    return 0 if letters != text else 1


def _spread(pool: list[int], wanted: int) -> list[int]:
    """`wanted` of the pool: its first ones, then ever further apart, up to its last one."""
    if wanted >= len(pool):
        return pool
    ranks: list[int] = []
    for place in range(wanted):
        far = round(len(pool) ** (place / max(1, wanted - 1))) - 1
        ranks.append(max(far, ranks[-1] + 1 if ranks else 0))
    return [pool[min(rank, len(pool) - wanted + place)] for place, rank in enumerate(ranks)]


def _neighbors(table_VD: Tensor, token_id: int, tokenizer: Tokenizer, k: int) -> tuple[Neighbor, ...]:
    found = nearest(table_VD[token_id], _blocks(table_VD), k, exclude=token_id)
    return tuple(Neighbor(id=other, label=spelled(tokenizer, other), cosine=cosine) for other, cosine in found)


# ---- drift


class _Measures:
    """Of every row: its lengths, how far it turned and moved."""

    def __init__(self, before_VD: Tensor, after_VD: Tensor) -> None:
        per_row = []
        for (_, old_ND), (_, new_ND) in zip(_blocks(before_VD), _blocks(after_VD), strict=True):
            old, new = old_ND.double(), new_ND.double()
            norm_old, norm_new = old.norm(dim=1), new.norm(dim=1)
            cosine = ((old / norm_old[:, None]) * (new / norm_new[:, None])).sum(dim=1).clamp(-1, 1)
            per_row.append(torch.stack((norm_old, norm_new, cosine, (new - old).norm(dim=1) / norm_old)))
        whole: npt.NDArray[np.float64] = torch.cat(per_row, dim=1).numpy() if per_row else np.empty((4, 0))
        self.norm_before, self.norm_after, self.cosine, self.movement = whole[0], whole[1], whole[2], whole[3]

    def drift(self, name: str, ids: npt.NDArray[np.int64], counts_V: npt.NDArray[np.int64]) -> Drift:
        """The means over some rows."""
        counts = counts_V[ids]
        return Drift(
            name=name,
            rows=len(ids),
            least=int(counts.min()),
            most=int(counts.max()),
            share=float(counts.sum() / max(1, counts_V.sum())),
            cosine=_mean(self.cosine[ids]),
            movement=_mean(self.movement[ids]),
            norm_before=_mean(self.norm_before[ids]),
            norm_after=_mean(self.norm_after[ids]),
        )


def _groups(
    counts_V: npt.NDArray[np.int64], kept_V: npt.NDArray[np.bool_]
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    order = np.argsort(-counts_V, kind="stable")
    order = order[kept_V[order]]
    seen = int(np.count_nonzero(counts_V[order]))
    quarters = zip(QUARTERS, np.array_split(order[:seen], len(QUARTERS)), strict=True)
    for name, ids in ((ALL, order), *quarters, (NEVER, order[seen:])):
        if len(ids):
            yield name, ids


def _mean_row_ratio(table_VD: Tensor, norms_V: npt.NDArray[np.float64], kept_V: npt.NDArray[np.bool_]) -> float | None:
    total_D = torch.zeros(table_VD.shape[1], dtype=torch.float64)
    for start, block_ND in _blocks(table_VD):
        total_D += block_ND[torch.from_numpy(kept_V[start : start + len(block_ND)])].double().sum(dim=0)
    length = float(norms_V[kept_V].sum())
    return _finite(float(total_D.norm()) / length) if length else None


def _blocks(table_VD: Tensor) -> Iterator[tuple[int, Tensor]]:
    rows = max(1, BLOCK_VALUES // max(1, table_VD.shape[1]))
    yield from ((start, table_VD[start : start + rows]) for start in range(0, len(table_VD), rows))


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    """Of those that are numbers; None where none is."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
