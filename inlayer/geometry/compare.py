"""Two tables compared: which tokens they share, which rows moved, and whether neighborhoods agree.

table, table -> shared tokens -> [alignment -> movement, overlap]
- tokens are matched by their bytes in running text, so models of different sizes or families can be compared:
  WordPiece's `king` and `##ing` match ` king` and `ing`
- rows are compared directly if the tables have the same width and shared rows point the same way (median cosine above
  SAME_SPACE). Otherwise the second table is first rotated onto the first by orthogonal Procrustes, which keeps all
  norms and angles within it
- overlap is the share of a token's K nearest shared tokens in one table that are also among its K nearest in the other.
  It needs no alignment
Tested against scipy's Procrustes and plain loops in tests/geometry/test_compare.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import regex

from inlayer.checkpoint import load
from inlayer.checkpoint.model import Model
from inlayer.errors import InputError
from inlayer.geometry.nearest import nearest_others, square_norms, to_float32
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.tables.stored_table import StoredTable
from inlayer.tokenizers.base import token_bytes

SAME_SPACE = 0.5
BLOCK_VALUES = 2**21
SAMPLE = 1000  # tokens whose neighborhoods are compared
NEIGHBORS = 10
SPACE = "▁".encode()  # SentencePiece's symbol for a space
WORD_START = regex.compile(rb"(?=[^\W_]|[\x80-\xff])")
Ids = npt.NDArray[np.int64]
NamedTable = tuple[StoredTable, Vocabulary]


class MovedRow(NamedTuple):
    """A token that two models share, and its row in each.

    Attributes:
        text: The text of the token.
        id_a: Its id in the first model.
        id_b: Its id in the second model.
        cosine: Cosine similarity of the two rows; NaN if one of them is zero or not finite.
        norm_a: Norm of the first row.
        norm_b: Norm of the second row.

    Example:
        >>> inlayer.compare("default", "default").moved  # no row differs
        []
    """

    text: str
    id_a: int
    id_b: int
    cosine: float
    norm_a: float
    norm_b: float


class ModelComparison(NamedTuple):
    """How the tables of two models differ, as returned by `inlayer.compare`.

    Attributes:
        shared: Number of tokens that both models have.
        only_a: Texts of the tokens that only the first model has, sorted by id.
        only_b: Texts of the tokens that only the second model has, sorted by id.
        aligned: True if the second table was rotated onto the first.
        median_cosine: Median cosine similarity between the two rows of a shared token, after the rotation if there was
            one; NaN if no token has two rows that are nonzero and finite.
        equal: Number of shared tokens whose rows are identical.
        moved: The rows that differ most, lowest cosine first.
        overlap: Mean share of nearest neighbors that a token has in both tables; None if too few tokens are shared.
        damaged: The first rows that are zero or not finite in one of the models. Rows that are zero in both are not
            included.
        n_damaged: Number of all such rows.

    Example:
        >>> result = inlayer.compare("default", "default")
        >>> result.shared == result.equal, result.median_cosine
        (True, 1.0)
    """

    shared: int
    only_a: list[str]
    only_b: list[str]
    aligned: bool
    median_cosine: float
    equal: int
    moved: list[MovedRow]
    overlap: float | None
    damaged: list[MovedRow]
    n_damaged: int


class MatchedRows(NamedTuple):
    """Tokens of two tables matched by their bytes.

    ids_a, ids_b: The ids of every shared token.
    cosines: Cosine of each token's two rows; NaN if one is zero or not finite.
    norms_a, norms_b: Norms of the rows.
    equal: Whether the two rows are exactly equal.
    aligned: Whether rows of the second table were rotated onto the first.
    only_a, only_b: Ids of tokens that only one table has.
    """

    ids_a: Ids
    ids_b: Ids
    cosines: npt.NDArray[np.float64]
    norms_a: npt.NDArray[np.float64]
    norms_b: npt.NDArray[np.float64]
    equal: npt.NDArray[np.bool_]
    aligned: bool
    only_a: list[int]
    only_b: list[int]

    def moved_first(self) -> Ids:
        """Return the indices of shared tokens whose rows differ, smallest cosine first."""
        differs = ~(np.isnan(self.cosines) | self.equal)
        order = np.argsort(np.where(differs, self.cosines, np.inf), kind="stable")
        return order[: int(differs.sum())]

    def damaged(self) -> Ids:
        """Return the indices of shared tokens without a cosine, except those whose rows are zero in both tables."""
        return np.flatnonzero(np.isnan(self.cosines) & ~((self.norms_a == 0) & (self.norms_b == 0)))


def compare(a: Any, b: Any, *, top: int = 20) -> ModelComparison:
    """Compare the tables of two models: shared tokens, rows that moved, common neighborhoods.

    Args:
        a: A model, or a source as for `inlayer.load`.
        b: The model to compare it with.
        top: Number of rows to list, those that moved most.

    Returns:
        The comparison. If the two spaces differ, rows of `b` are first rotated onto the rows of `a`.

    Raises:
        InputError: If a model has no tokenizer, or the two share no token.
        InlayerError: If a source cannot be opened; see `load`.

    Example:
        >>> result = compare("default", "model")  # a copy
        >>> result.shared, result.equal
        (6144, 6144)
    """
    one, other = (source if isinstance(source, Model) else load(source) for source in (a, b))
    return compare_tables((one.table, one.vocabulary), (other.table, other.vocabulary), top=top)


def compare_tables(
    a: NamedTable, b: NamedTable, *, top: int = 20, shared: MatchedRows | None = None
) -> ModelComparison:
    """Compare two tables by their shared tokens; `top` rows that moved most are listed."""
    (table_a, vocabulary_a), (table_b, vocabulary_b) = a, b
    matched = match_rows(a, b) if shared is None else shared
    damaged = matched.damaged()
    moved, first_damaged = (
        [
            MovedRow(vocabulary_a.text(int(matched.ids_a[i])), int(matched.ids_a[i]), int(matched.ids_b[i]),
                     float(matched.cosines[i]), float(matched.norms_a[i]), float(matched.norms_b[i]))
            for i in which[:top].tolist()
        ]
        for which in (matched.moved_first(), damaged)
    )  # fmt: skip
    return ModelComparison(
        shared=len(matched.ids_a),
        only_a=[vocabulary_a.text(token_id) for token_id in matched.only_a],
        only_b=[vocabulary_b.text(token_id) for token_id in matched.only_b],
        aligned=matched.aligned,
        median_cosine=_median(matched.cosines),
        equal=int(matched.equal.sum()),
        moved=moved,
        overlap=_overlap(table_a, table_b, matched.ids_a, matched.ids_b),
        damaged=first_damaged,
        n_damaged=len(damaged),
    )


def match_rows(a: NamedTable, b: NamedTable) -> MatchedRows:
    """Match the tokens of two tables by their bytes and compare their rows, after a rotation if the spaces differ."""
    (table_a, vocabulary_a), (table_b, vocabulary_b) = a, b
    ids_by_token_a, ids_by_token_b = tokens_by_bytes(vocabulary_a), tokens_by_bytes(vocabulary_b)
    common = [token for token in ids_by_token_a if token in ids_by_token_b]
    if not common:
        raise InputError("the two models have no token in common; is one of the tokenizers damaged?")
    ids_a = np.array([ids_by_token_a[token] for token in common], np.int64)
    ids_b = np.array([ids_by_token_b[token] for token in common], np.int64)
    rotation, facts = None, None
    if table_a.embedding_dim == table_b.embedding_dim:
        facts = _row_facts(table_a, table_b, ids_a, ids_b, None)
    if facts is None or _median(facts[0]) < SAME_SPACE:
        rotation = _procrustes(table_a, table_b, ids_a, ids_b)
        facts = _row_facts(table_a, table_b, ids_a, ids_b, rotation)
    only_a = [token_id for token, token_id in ids_by_token_a.items() if token not in ids_by_token_b]
    only_b = [token_id for token, token_id in ids_by_token_b.items() if token not in ids_by_token_a]
    return MatchedRows(ids_a, ids_b, *facts, rotation is not None, only_a, only_b)


def tokens_by_bytes(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the id of every token, by its bytes; the first one if several tokens have the same."""
    ids_by_token: dict[bytes, int] = {}
    if vocabulary.tokenizer is None:
        raise InputError("a model without a tokenizer cannot be compared: its rows cannot be matched by token")
    prefix = vocabulary.tokenizer._continuation_prefix
    for token_id in range(vocabulary.rows):
        token = token_bytes(vocabulary.tokenizer, token_id)
        if token is not None:
            token = _in_text(token, prefix) if prefix else token.replace(SPACE, b" ")
            ids_by_token.setdefault(token, token_id)
    return ids_by_token


def _in_text(token: bytes, prefix: bytes) -> bytes:
    """Return a WordPiece token as it occurs in running text: `##ing` continues a word, `king` follows a space."""
    if token.startswith(prefix) and WORD_START.match(token, len(prefix)):
        return token.removeprefix(prefix)
    return b" " + token if WORD_START.match(token) else token


def _pairs(
    table_a: StoredTable, table_b: StoredTable, ids_a: Ids, ids_b: Ids
) -> Iterator[tuple[int, npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
    """Yield blocks of rows of shared tokens, in float32."""
    size = max(1, BLOCK_VALUES // max(table_a.embedding_dim, table_b.embedding_dim))
    for start in range(0, len(ids_a), size):
        rows_a, rows_b = table_a.rows(ids_a[start : start + size]), table_b.rows(ids_b[start : start + size])
        yield start, to_float32(rows_a), to_float32(rows_b)


def _row_facts(
    table_a: StoredTable, table_b: StoredTable, ids_a: Ids, ids_b: Ids, rotation: npt.NDArray[np.float32] | None
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """Return the cosine (NaN if a row is zero or not finite), both norms, and the equality of every pair of rows."""
    cosines, norms_a, norms_b = np.full((3, len(ids_a)), np.nan)
    equal = np.zeros(len(ids_a), np.bool_)
    for start, one, other in _pairs(table_a, table_b, ids_a, ids_b):
        part = slice(start, start + len(one))
        equal[part] = rotation is None and (one == other).all(axis=1)
        (unit_a, norms_a[part]), (unit_b, norms_b[part]) = _units(one), _units(other)
        with np.errstate(all="ignore"):
            rotated = unit_b if rotation is None else unit_b @ rotation
            cosines[part] = np.vecdot(unit_a, rotated) / np.sqrt(np.vecdot(rotated, rotated))
    cosines[~np.isfinite(cosines)] = np.nan
    return np.minimum(cosines, 1.0), norms_a, norms_b, equal


def _units(rows: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64]]:
    """Return rows divided by their norms, and the norms; a row that is zero or not finite becomes NaN."""
    norms = np.sqrt(square_norms(rows))
    with np.errstate(all="ignore"):
        return (rows / norms[:, None]).astype(np.float32), norms


def _median(cosines: npt.NDArray[np.float64]) -> float:
    known = cosines[~np.isnan(cosines)]
    return float(np.median(known)) if len(known) else math.nan


def _procrustes(table_a: StoredTable, table_b: StoredTable, ids_a: Ids, ids_b: Ids) -> npt.NDArray[np.float32]:
    """Return the orthogonal matrix (Db, Da) that brings unit rows of b closest to the unit rows of a."""
    product = np.zeros((table_b.embedding_dim, table_a.embedding_dim))
    for _, *pair in _pairs(table_a, table_b, ids_a, ids_b):
        one, other = (_units(rows)[0] for rows in pair)
        valid = np.isfinite(one).all(axis=1) & np.isfinite(other).all(axis=1)
        product += other[valid].T @ one[valid]
    left, _, right = np.linalg.svd(product, full_matrices=False)
    rotation: npt.NDArray[np.float32] = (left @ right).astype(np.float32)
    return rotation


def _overlap(table_a: StoredTable, table_b: StoredTable, ids_a: Ids, ids_b: Ids) -> float | None:
    """Return the mean share of common neighbors, for an evenly spaced sample of the shared tokens."""
    if len(ids_a) <= NEIGHBORS:
        return None
    sample = np.unique(np.linspace(0, len(ids_a) - 1, SAMPLE).astype(np.int64))
    neighbors = []
    for table, ids in ((table_a, ids_a), (table_b, ids_b)):
        index = np.full(table.num_embeddings, -1, np.int64)
        index[ids] = np.arange(len(ids))
        rows = to_float32(table.rows(ids[sample]))
        valid = np.asarray(np.isfinite(rows).all(axis=1) & rows.any(axis=1))
        rows[~valid] = 1.0
        near, _ = nearest_others(table, ids[sample], rows, NEIGHBORS, allowed=index >= 0)
        neighbors.append(
            [set(index[row[row >= 0]].tolist()) if ok else set() for row, ok in zip(near, valid, strict=True)]
        )
    pairs = [(one, other) for one, other in zip(*neighbors, strict=True) if one and other]
    return float(np.mean([len(one & other) / max(len(one), len(other)) for one, other in pairs])) if pairs else None
