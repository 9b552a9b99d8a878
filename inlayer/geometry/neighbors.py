"""Neighbors and analogies: which tokens have rows in the same direction as a word, a text, an id or a vector.

query -> vector -> [nearest rows] -> tokens
- the query's own tokens are excluded, and so are special tokens, unless requested
- an analogy is shown with its baselines: the nearest tokens to the first word alone, with and without its inputs.
  Where a baseline gives the same answer, the arithmetic added nothing. Without its inputs also means without variants
  of them: "Woman" and "woman" do not answer an analogy with " woman"
- see also: the search (geometry/nearest.py), filters on tokens (geometry/vocabulary.py)
Tested against a plain computation on real models in tests/geometry/test_neighbors.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from inlayer.checks import check_id_array, check_size
from inlayer.errors import InputError
from inlayer.families.tensor_names import config_has_head
from inlayer.files import quote
from inlayer.geometry.nearest import nearest, normalized, to_float32
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.render.progress_bar import Progress
from inlayer.tables.stored_table import StoredTable

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

Query = Any  # str, int or vector


class Neighbor(NamedTuple):
    """A token near a query: its id, its text, and the cosine of its row with the query."""

    id: int
    text: str
    score: float


class Filter(NamedTuple):
    """Which tokens a search may return.

    words: Only whole words.
    script: Only tokens in this Unicode script, such as "Latin".
    special: Also special tokens, placeholders, and rows without a token.
    """

    words: bool = False
    script: str | None = None
    special: bool = False

    def mask(self, vocabulary: Vocabulary) -> npt.NDArray[np.bool_]:
        """Return the rows that may be returned."""
        allowed = np.ones(vocabulary.rows, np.bool_)
        if vocabulary.tokenizer is not None and not self.special:
            allowed &= ~vocabulary.special
        if self.words:
            allowed &= vocabulary.words
        if self.script is not None:
            allowed &= vocabulary.script(self.script)
        return allowed


NO_FILTER = Filter()


class Analogy(NamedTuple):
    """The answers to "a - b + c", and what the words alone would have answered.

    answers: Nearest tokens to the vector a - b + c, inputs excluded, and with them tokens that are the same word as an
        input apart from case and spaces.
    nearest_to_first: Nearest tokens to `a` alone, with the same tokens excluded. The same answer here means that the
        arithmetic added nothing to similarity.
    with_inputs: Nearest tokens to a - b + c, nothing excluded: often `a` itself.
    """

    answers: list[Neighbor]
    nearest_to_first: list[Neighbor]
    with_inputs: list[Neighbor]


def searched_table(model: Model, table: str) -> StoredTable:
    """Return the table to search: "input", or "head" for the rows of the head."""
    if table not in {"input", "head"}:
        raise InputError(f'table is {quote(table)}; it must be "input" or "head"')
    if table == "input":
        return model.table
    if model.head_name is None and model.is_tied and config_has_head(model.config) is not False:
        return model.table
    if model.head_name is None:
        raise InputError(f"{model.source} has no head; search its input table")
    return model.store.table(model.head_name)


def query_vector(query: Query, table: StoredTable, vocabulary: Vocabulary) -> tuple[npt.NDArray[np.float32], list[int]]:
    """Return the vector of a query, and the ids it was made from: the mean of the rows of a text's tokens."""
    if isinstance(query, str):
        ids = vocabulary.ids_of(query)
        if not ids:
            raise InputError(f"{quote(query)} has no tokens, so it has no neighbors; pass another word or text")
    elif isinstance(query, (int, np.integer)) and not isinstance(query, bool):
        ids = [int(query)]
    else:
        vector = np.asarray(query)
        if vector.dtype.kind not in "fiV" or vector.shape != (table.embedding_dim,):
            raise InputError(
                f"the query has dtype {vector.dtype} and shape {vector.shape}; pass a word, a text, a token id, or a "
                f"vector of {table.embedding_dim} numbers"
            )
        return vector.astype(np.float32), []
    check_id_array(ids, table.num_embeddings)
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
    only: Filter = NO_FILTER,
    progress: Progress | None = None,
) -> list[Neighbor]:
    """Return the k tokens nearest to a query, nearest first."""
    vector, ids = query_vector(query, table, vocabulary)
    return _search(table, vocabulary, vector[None], k, only, [ids], progress)[0]


def find_analogy(
    table: StoredTable, vocabulary: Vocabulary, words: Sequence[Query], k: int, only: Filter = NO_FILTER
) -> Analogy:
    """Find the tokens nearest to a - b + c, for words (a, b, c), and its baselines. Vectors are normalized first."""
    pairs = [query_vector(word, table, vocabulary) for word in words]
    a, b, c = normalized([vector for vector, _ in pairs], table.embedding_dim)
    inputs = [token_id for _, ids in pairs for token_id in ids]
    inputs += vocabulary.variants([_word(word, vocabulary) for word in words])
    queries = np.stack([a - b + c, a, a - b + c])
    return Analogy(*_search(table, vocabulary, queries, k, only, [inputs, inputs, []], None))


def _word(query: Query, vocabulary: Vocabulary) -> str:
    """Return the word that a query stands for; a vector stands for none."""
    is_id = isinstance(query, (int, np.integer))
    return query if isinstance(query, str) else vocabulary.text(int(query)) if is_id else ""


def _search(
    table: StoredTable,
    vocabulary: Vocabulary,
    queries_QD: npt.NDArray[np.float32],
    k: int,
    only: Filter,
    excluded: Sequence[Sequence[int]],
    progress: Progress | None,
) -> list[list[Neighbor]]:
    """Return the k neighbors of each query, without the ids excluded for it."""
    check_size(k, "k")
    max_excluded = max(map(len, excluded))
    ids_QK, scores_QK = nearest(table, queries_QD, k + max_excluded, allowed=only.mask(vocabulary), progress=progress)
    results = []
    for ids, scores, skipped in zip(ids_QK.tolist(), scores_QK.tolist(), excluded, strict=True):
        neighbors = [
            Neighbor(token_id, vocabulary.text(token_id), min(score, 1.0))
            for token_id, score in zip(ids, scores, strict=True)
            if token_id >= 0 and token_id not in skipped
        ]
        results.append(neighbors[:k])
    return results
