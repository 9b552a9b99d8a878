"""Compares two tables: which tokens they share, which rows moved, and whether neighborhoods agree.

table, table -> shared tokens -> [alignment -> movement, overlap]
- tokens are matched by their bytes in running text, so models of different sizes or families can be compared:
  WordPiece's `king` and `##ing` match ` king` and `ing`
- without a tokenizer, two tables of the same shape are matched by id: usually, one was fine-tuned from the other
- rows are compared directly if the tables have the same width and shared rows point the same way (median cosine above
  SAME_SPACE). Otherwise the second table is first rotated onto the first by orthogonal Procrustes, which keeps all
  norms and angles within it
- overlap is the share of a token's K nearest shared tokens in one table that are also among its K nearest in the other;
  it does not depend on the rotation
- the page shows both maps side by side. The second is rotated, mirrored, and scaled onto the first (Procrustes over
  shared tokens). The shared tokens that moved most, and the tokens that only one model has, are colored; hovering and
  choosing a token affect both maps
Tested against scipy's Procrustes and plain loops in tests/geometry/test_compare.py, and in Chromium in
tests/browser/test_map.py.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
import regex

from inlayer.checkpoint import load
from inlayer.checkpoint.model import Model
from inlayer.errors import InputError
from inlayer.geometry.map_page import METHODS, all_neighbors, build_page, encode, encode_words
from inlayer.geometry.nearest import nearest_excluding_self, square_norms, to_float32
from inlayer.geometry.projection import Points, TableProjection
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Ids, Mask, Numbers, Vectors
from inlayer.tables.stored_table import StoredTable
from inlayer.tokenizers.base import token_bytes

SAME_SPACE = 0.5
BLOCK_VALUES = 2**21
SAMPLE = 1000  # tokens whose neighborhoods are compared
NEIGHBORS = 10
SPACE = "▁".encode()  # SentencePiece's symbol for a space
WORD_START = regex.compile(rb"(?=[^\W_]|[\x80-\xff])")
MOVED_SHARE = 0.1  # share of the shared tokens that are colored as moved
MOVED_BELOW = 0.99  # cosine
MOVED_NORM = 1.1  # ratio of the norms; ignored if the second table was rotated, because its units differ
MAX_LISTED = 200
NamedTable = tuple[StoredTable, Vocabulary]


class MovedRow(NamedTuple):
    """A token that two models share, with its row in each.

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
        n_shared: Number of tokens that both models have.
        matched_by: "token", or "id" if the models have no tokenizer.
        only_a: Texts of the tokens that only the first model has, sorted by id.
        only_b: Texts of the tokens that only the second model has, sorted by id.
        rotated: True if the second table was rotated onto the first.
        median_cosine: Median cosine similarity between the two rows of a shared token, after the rotation if there was
            one; NaN if no token has two rows that are nonzero and finite.
        n_equal: Number of shared tokens whose rows are identical.
        moved: The rows that differ most, lowest cosine first.
        overlap: Mean share of nearest neighbors that a token has in both tables; None if too few tokens are shared.
        damaged: The first rows that are zero or not finite in one of the models. Rows that are zero in both are not
            included.
        n_damaged: Total number of damaged rows.

    Example:
        >>> result = inlayer.compare("default", "default")
        >>> result.n_shared == result.n_equal, result.median_cosine
        (True, 1.0)
    """

    n_shared: int
    matched_by: Literal["token", "id"]
    only_a: list[str]
    only_b: list[str]
    rotated: bool
    median_cosine: float
    n_equal: int
    moved: list[MovedRow]
    overlap: float | None
    damaged: list[MovedRow]
    n_damaged: int

    def __repr__(self) -> str:
        facts = f"{self.n_shared:,} shared tokens, {self.n_equal:,} equal rows, median cosine {self.median_cosine:.3f}"
        return f"<ModelComparison: {facts}>"


class Side(NamedTuple):
    """One of two tables, with the ids of shared tokens (in the same order for both) and of tokens only it has."""

    table: StoredTable
    vocabulary: Vocabulary
    ids: Ids
    only: list[int]

    @property
    def only_texts(self) -> list[str]:
        return [self.vocabulary.text(token_id) for token_id in self.only]


class MatchedRows(NamedTuple):
    """The tokens that two tables share, matched by their bytes; every array has one entry per token."""

    a: Side
    b: Side
    cosines: Numbers  # between each token's two rows; NaN if one is zero or not finite
    norms_a: Numbers
    norms_b: Numbers
    equal: Mask  # whether the two rows are exactly equal
    rotated: bool  # whether rows of the second table were rotated onto the first

    @property
    def matched_by(self) -> Literal["token", "id"]:
        return "id" if self.a.vocabulary.tokenizer is None else "token"

    def moved_first(self) -> Ids:
        """Return the indices of shared tokens whose rows differ, lowest cosine first."""
        differs = np.flatnonzero(~(np.isnan(self.cosines) | self.equal))
        return differs[np.argsort(self.cosines[differs], kind="stable")]

    def damaged(self) -> Ids:
        """Return the indices of shared tokens without a cosine, except those whose rows are zero in both tables."""
        return np.flatnonzero(np.isnan(self.cosines) & ~((self.norms_a == 0) & (self.norms_b == 0)))


def compare(a: Model | str | os.PathLike[str], b: Model | str | os.PathLike[str], *, top: int = 20) -> ModelComparison:
    """Compare the tables of two models: shared tokens, rows that moved, and overlapping neighborhoods.

    Args:
        a: A model, or any source that `inlayer.load` accepts.
        b: The model to compare it with.
        top: Number of rows to list, those that moved most.

    Returns:
        The comparison. If the two spaces differ, rows of `b` are first rotated onto the rows of `a`.

    Raises:
        InputError: If the two models share no token, or if they have no tokenizer and differ in shape.
        InlayerError: If a source cannot be opened; see `load`.

    Example:
        >>> result = compare("default", "model")  # a copy
        >>> result.n_shared, result.n_equal
        (6144, 6144)
    """
    return compare_tables(
        match_models(*(source if isinstance(source, Model) else load(source) for source in (a, b))), top
    )


def compare_tables(matched: MatchedRows, top: int = 20) -> ModelComparison:
    """Compare two tables by their shared tokens, and list the `top` rows that moved or differ most."""
    damaged = matched.damaged()

    def rows(indices: Ids) -> list[MovedRow]:
        columns = matched.a.ids, matched.b.ids, matched.cosines, matched.norms_a, matched.norms_b
        values = zip(*(column[indices[:top]].tolist() for column in columns), strict=True)
        return [MovedRow(matched.a.vocabulary.text(id_a), id_a, *others) for id_a, *others in values]

    return ModelComparison(
        n_shared=len(matched.cosines),
        matched_by=matched.matched_by,
        only_a=matched.a.only_texts,
        only_b=matched.b.only_texts,
        rotated=matched.rotated,
        median_cosine=_median(matched.cosines),
        n_equal=int(matched.equal.sum()),
        moved=rows(matched.moved_first()),
        overlap=_overlap(matched.a, matched.b),
        damaged=rows(damaged),
        n_damaged=len(damaged),
    )


def match_models(a: Model, b: Model) -> MatchedRows:
    """Match the rows of two models; see `match_rows`."""
    return match_rows((a.table, a.vocabulary), (b.table, b.vocabulary), (a.source, b.source))


def match_rows(a: NamedTable, b: NamedTable, names: tuple[str, str] = ("A", "B")) -> MatchedRows:
    """Match the tokens of two tables by their bytes and compare their rows, after a rotation if the spaces differ."""
    without = [name for name, (_, words) in zip(names, (a, b), strict=True) if words.tokenizer is None]
    if without and (len(without) == 1 or a[0].shape != b[0].shape):
        raise InputError(
            f"{' and '.join(without)} cannot be compared without a tokenizer; put its files next to the weights. Only "
            "two tables of the same shape, both without a tokenizer, are matched by id"
        )
    if without:
        tokens_a = tokens_b = {str(token_id).encode(): token_id for token_id in range(a[1].rows)}
    else:
        tokens_a, tokens_b = tokens_by_bytes(a[1]), tokens_by_bytes(b[1])
    common = [token for token in tokens_a if token in tokens_b]
    if not common:
        raise InputError("the two models have no token in common; is one of the tokenizers damaged?")

    def side(table: NamedTable, ids: dict[bytes, int], others: dict[bytes, int]) -> Side:
        only = [token_id for token, token_id in ids.items() if token not in others]
        return Side(*table, np.array([ids[token] for token in common], np.int64), only)

    side_a, side_b = side(a, tokens_a, tokens_b), side(b, tokens_b, tokens_a)
    facts = _row_facts(side_a, side_b, None) if side_a.table.embedding_dim == side_b.table.embedding_dim else None
    if needs_rotation := facts is None or _median(facts[0]) < SAME_SPACE:
        facts = _row_facts(side_a, side_b, _procrustes(side_a, side_b))
    return MatchedRows(side_a, side_b, *facts, needs_rotation)


def tokens_by_bytes(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Return the id of every token, by its bytes; the first id if several tokens have the same bytes."""
    ids_by_token: dict[bytes, int] = {}
    prefix = vocabulary.tokenizer._continuation_prefix if vocabulary.tokenizer is not None else b""
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


def _blocks(a: Side, b: Side) -> Iterator[tuple[slice, Vectors, Vectors]]:
    """Yield the rows of shared tokens in float32, in blocks."""
    size = max(1, BLOCK_VALUES // max(a.table.embedding_dim, b.table.embedding_dim))
    for start in range(0, len(a.ids), size):
        part = slice(start, start + size)
        yield part, to_float32(a.table.rows(a.ids[part])), to_float32(b.table.rows(b.ids[part]))


def _row_facts(a: Side, b: Side, rotation: Vectors | None) -> tuple[Numbers, Numbers, Numbers, Mask]:
    """Return the cosine (NaN if a row is zero or not finite), both norms, and the equality of every pair of rows."""
    cosines, norms_a, norms_b = np.full((3, len(a.ids)), np.nan)
    equal = np.zeros(len(a.ids), np.bool_)
    for part, rows_a, rows_b in _blocks(a, b):
        equal[part] = rotation is None and (rows_a == rows_b).all(axis=1)
        (unit_a, norms_a[part]), (unit_b, norms_b[part]) = _units(rows_a), _units(rows_b)
        with np.errstate(all="ignore"):
            rotated = unit_b if rotation is None else unit_b @ rotation
            cosines[part] = np.vecdot(unit_a, rotated) / np.sqrt(np.vecdot(rotated, rotated))
    cosines[~np.isfinite(cosines)] = np.nan
    return np.minimum(cosines, 1.0), norms_a, norms_b, equal


def _units(rows: Vectors) -> tuple[Vectors, Numbers]:
    """Return rows divided by their norms, and the norms; a row that is zero or not finite becomes NaN."""
    norms = np.sqrt(square_norms(rows))
    with np.errstate(all="ignore"):
        return (rows / norms[:, None]).astype(np.float32), norms


def _median(cosines: Numbers) -> float:
    known = cosines[~np.isnan(cosines)]
    return float(np.median(known)) if len(known) else math.nan


def _procrustes(a: Side, b: Side) -> Vectors:
    """Return the orthogonal matrix (Db, Da) that brings unit rows of b closest to the unit rows of a."""
    product = np.zeros((b.table.embedding_dim, a.table.embedding_dim))
    for _, rows_a, rows_b in _blocks(a, b):
        unit_a, unit_b = _units(rows_a)[0], _units(rows_b)[0]
        valid = np.isfinite(unit_a).all(axis=1) & np.isfinite(unit_b).all(axis=1)
        product += unit_b[valid].T @ unit_a[valid]
    left, _, right = np.linalg.svd(product, full_matrices=False)
    return np.asarray(left @ right, np.float32)


def _overlap(a: Side, b: Side) -> float | None:
    """Return the mean share of common neighbors, for an evenly spaced sample of the shared tokens."""
    if len(a.ids) <= NEIGHBORS:
        return None
    sample = np.unique(np.linspace(0, len(a.ids) - 1, SAMPLE).astype(np.int64))
    neighbors = []
    for table, ids in ((a.table, a.ids), (b.table, b.ids)):
        index = np.full(table.num_embeddings, -1, np.int64)
        index[ids] = np.arange(len(ids))
        rows = to_float32(table.rows(ids[sample]))
        valid = np.asarray(np.isfinite(rows).all(axis=1) & rows.any(axis=1))
        rows[~valid] = 1.0
        near, _ = nearest_excluding_self(table, ids[sample], rows, NEIGHBORS, allowed=index >= 0)
        neighbors.append([set(index[row[row >= 0]]) if ok else set() for row, ok in zip(near, valid, strict=True)])
    pairs = [pair for pair in zip(*neighbors, strict=True) if all(pair)]
    shares = [len(near_a & near_b) / max(len(near_a), len(near_b)) for near_a, near_b in pairs]
    return float(np.mean(shares)) if shares else None


# ---- the page


def compare_page(
    names: tuple[str, str],
    projections: tuple[TableProjection, TableProjection],
    shared: MatchedRows,
    facts: Sequence[tuple[str, str]],
    progress: Progress = no_progress,
) -> str:
    """Return the whole document; `facts` are labels and texts that describe the comparison."""
    points_a = projections[0].points
    points_b = align_points(points_a, projections[1].points, shared)
    order = shared.moved_first()
    with np.errstate(divide="ignore"):
        norm_change = np.abs(np.log(shared.norms_b[order] / shared.norms_a[order]))
    has_moved = (shared.cosines[order] < MOVED_BELOW) | (not shared.rotated and norm_change > math.log(MOVED_NORM))
    moved = order[has_moved][: max(1, int(len(shared.cosines) * MOVED_SHARE))]
    damaged = shared.damaged()
    sides = []
    for (table, words, ids, only), points in ((shared.a, points_a), (shared.b, points_b)):
        groups = np.zeros(table.num_embeddings, np.uint8)
        groups[only], groups[ids[moved]] = 1, 2
        side: dict[str, Any] = {
            "points": encode(points), "texts": [words.text(token_id) for token_id in range(table.num_embeddings)],
            "words": encode_words(words), "groups": encode(groups, "u1"), "ids": encode(ids, "<i4"), "only": len(only),
        }  # fmt: skip
        sides.append(side | all_neighbors(table, points, progress))
    data = {
        "sides": sides, "cosines": encode(shared.cosines),
        "norms_a": encode(shared.norms_a, "<f8"), "norms_b": encode(shared.norms_b, "<f8"),
        "moved": moved[:MAX_LISTED].tolist(), "n_moved": int(has_moved.sum()),
        "damaged": damaged[:MAX_LISTED].tolist(), "n_damaged": len(damaged), "rotated": shared.rotated,
    }  # fmt: skip
    or_norm = "" if shared.rotated else f", or a norm that changed by more than {MOVED_NORM - 1:.0%}"
    about = (
        f"Each map is computed from its own table ({METHODS[projections[0].method]}); map B is rotated onto map A. "
        f"{'Different' if shared.rotated else 'Moved'}: a cosine below {MOVED_BELOW}{or_norm}."
    )
    parts = {
        "a": escape(names[0]), "b": escape(names[1]), "about": escape(about),
        "moved": "differ" if shared.rotated else "moved",
        "facts": "".join(f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in facts),
    }  # fmt: skip
    return build_page("compare", "map.css", "compare.css").document(f"{names[0]} and {names[1]}", data, **parts)


def align_points(points_a: Points, points_b: Points, shared: MatchedRows) -> Points:
    """Rotate, mirror, scale, and shift the second map so that shared tokens are closest to those on the first."""
    target, moved = points_a[shared.a.ids].astype(np.float64), points_b[shared.b.ids].astype(np.float64)
    finite = np.isfinite(target).all(axis=1) & np.isfinite(moved).all(axis=1)
    target, moved = target[finite], moved[finite]
    if len(target) < 2:
        return points_b
    center_a, center_b = target.mean(axis=0), moved.mean(axis=0)
    target, moved = target - center_a, moved - center_b
    left, _, right = np.linalg.svd(moved.T @ target)
    scale = np.sqrt(np.square(target).sum() / max(float(np.square(moved).sum()), 1e-12))
    aligned: Points = ((points_b - center_b) @ (left @ right) * scale + center_a).astype(np.float32)
    return aligned
