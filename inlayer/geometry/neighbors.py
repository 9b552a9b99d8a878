"""Neighbors and analogies: which tokens have rows in the same direction as a word, a text, an id, or a vector.

query -> vector -> [nearest rows] -> tokens
- the query's own tokens are excluded, and so are special tokens, unless requested
- an analogy is shown with its baselines: the nearest tokens to the first word alone, with and without the inputs.
  Where a baseline gives the same answer, the arithmetic added nothing. Excluding the inputs also excludes variants of
  them: "Woman" and "woman" do not answer an analogy with " woman"
- see also: the search (geometry/nearest.py), filters on tokens (geometry/vocabulary.py)
Tested against a plain computation on real models in tests/geometry/test_neighbors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from inlayer.checks import check_size, is_integer
from inlayer.errors import InputError
from inlayer.files import quote
from inlayer.geometry.nearest import nearest, normalized, to_float32
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Array, Mask, Vectors
from inlayer.tables.stored_table import StoredTable

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

Query = str | int | np.integer[Any] | Array | Sequence[float]  # a word or text, a token id, or a vector (D,)
SearchedTable = Literal["input", "head"]


class Neighbor(NamedTuple):
    """A token near a query, as returned by `Model.neighbors`.

    Attributes:
        id: The token id.
        text: The text of the token.
        score: Cosine similarity of its row to the query.

    Example:
        >>> inlayer.load("default").neighbors("seven", 1)[0].text
        ' five'
    """

    id: int
    text: str
    score: float


class Analogy(NamedTuple):
    """The answers to "a - b + c" and to its baselines, as returned by `Model.analogy`.

    Attributes:
        answers: Tokens nearest to a - b + c. The inputs are excluded, as are tokens that match an input when case and
            whitespace are ignored.
        nearest_to_first: Tokens nearest to `a`, with the same exclusions. If the first answer is the same here, the
            arithmetic made no difference.
        answers_with_inputs: Tokens nearest to a - b + c, without exclusions: often `a` itself.

    Example:
        >>> inlayer.load("default").analogy("father", "man", "woman").answers[0].text
        ' mother'
    """

    answers: list[Neighbor]
    nearest_to_first: list[Neighbor]
    answers_with_inputs: list[Neighbor]


def searched_table(model: Model, table: SearchedTable) -> StoredTable:
    """Return the table to search: "input", or "head" for the rows of the head."""
    if table not in get_args(SearchedTable):
        raise InputError(f'table is {quote(table)}; it must be "input" or "head"')
    if table == "head" and model.head_name is not None:
        return model.store.table(model.head_name)
    if table == "head" and not model.has_head:
        raise InputError(f"{model.source} has no head; search its input table")
    return model.table


def query_vector(query: Query, table: StoredTable, vocabulary: Vocabulary) -> tuple[Vectors, list[int]]:
    """Return a query's vector (for text, the mean of its tokens' rows), and the ids that it was made from."""
    if isinstance(query, str):
        ids = vocabulary.ids_of(query)
        if not ids:
            raise InputError(f"{quote(query)} has no tokens, so it has no neighbors; pass another word or text")
    elif is_integer(query):
        ids = [int(query)]
    else:
        vector = np.asarray(query)
        if vector.dtype.kind not in "fiV" or vector.shape != (table.embedding_dim,):
            raise InputError(
                f"the query has dtype {vector.dtype} and shape {vector.shape}; pass a word, a text, a token id, or a "
                f"vector of {table.embedding_dim} numbers"
            )
        return vector.astype(np.float32), []
    with np.errstate(all="ignore"):  # rows may contain infinity
        vector_D = to_float32(table.rows(ids)).mean(axis=0, dtype=np.float64).astype(np.float32)
    if not np.isfinite(vector_D).all() or not vector_D.any():
        rows = f"row {ids[0]}" if len(ids) == 1 else f"the mean of rows {', '.join(map(str, ids[:8]))}"
        raise InputError(f"{rows} is zero or not finite, so it has no neighbors")
    return vector_D, ids


def find_neighbors(
    table: StoredTable,
    vocabulary: Vocabulary,
    query: Query,
    k: int,
    allowed: Mask | None = None,
    progress: Progress = no_progress,
) -> list[Neighbor]:
    """Return the k tokens nearest to a query, nearest first; by default, special tokens are not allowed."""
    vector, ids = query_vector(query, table, vocabulary)
    allowed = vocabulary.allowed() if allowed is None else allowed
    return _search(table, vocabulary, vector[None], k, allowed, [ids], progress)[0]


def find_analogy(
    table: StoredTable, vocabulary: Vocabulary, words: Sequence[Query], k: int, words_only: bool = False
) -> Analogy:
    """Find the tokens nearest to a - b + c, for words (a, b, c), and its baselines. Vectors are normalized first."""
    pairs = [query_vector(word, table, vocabulary) for word in words]
    a, b, c = normalized([vector for vector, _ in pairs], table.embedding_dim)
    inputs = [token_id for _, ids in pairs for token_id in ids]
    named = [(word, ids) for word, (_, ids) in zip(words, pairs, strict=True) if ids]  # a vector is not a word
    inputs += vocabulary.variants(word if isinstance(word, str) else vocabulary.text(ids[0]) for word, ids in named)
    queries = np.stack([a - b + c, a, a - b + c])
    allowed = vocabulary.allowed(words_only=words_only)
    return Analogy(*_search(table, vocabulary, queries, k, allowed, [inputs, inputs, []], no_progress))


def _search(
    table: StoredTable,
    vocabulary: Vocabulary,
    queries_QD: Vectors,
    k: int,
    allowed: Mask,
    excluded: Sequence[Sequence[int]],
    progress: Progress,
) -> list[list[Neighbor]]:
    """Return the k neighbors of each query, without the ids excluded for it."""
    check_size(k, "k")
    max_excluded = max(map(len, excluded))
    ids_QK, scores_QK = nearest(table, queries_QD, k + max_excluded, allowed=allowed, progress=progress)
    results = []
    for ids, scores, skipped in zip(ids_QK.tolist(), scores_QK.tolist(), excluded, strict=True):
        pairs = [pair for pair in zip(ids, scores, strict=True) if pair[0] >= 0 and pair[0] not in skipped]
        results.append([Neighbor(row, vocabulary.text(row), min(score, 1.0)) for row, score in pairs[:k]])
    return results
