"""Scores for a table on public word lists: word similarity and analogies, compared with random and simple baselines.

word lists -> rows -> [scores]
- word similarity: Spearman's rank correlation of cosines with human judgments, for pairs whose words are both single
  tokens (`coverage` is their share), and for all pairs, where a word of several tokens is the mean of their rows.
  `random_baseline` is the latter score for random rows, which shows how much spelling alone explains: words that share
  tokens are similar
- analogies: a question is included if its four words are single tokens with nonzero, finite rows. `nearest_baseline`
  answers with the token nearest to the third word alone, and `accuracy_with_inputs` does not exclude the inputs: only
  what exceeds both is due to the arithmetic. As in published scores, only the inputs are excluded, not variants of them
  as in `Model.analogy`
Tested against plain loops in tests/geometry/test_evaluation.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from inlayer.errors import InputError
from inlayer.files import check_kind, file_errors, format_path, quote
from inlayer.geometry.nearest import nearest, to_float32
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Ids, Numbers
from inlayer.tables.stored_table import StoredTable

BATCH = 1024  # questions per search
MAX_LINE = 1_000


class SimilarityScore(NamedTuple):
    """Agreement with human judgments on one list of word pairs; a correlation that is not defined is None."""

    name: str
    pairs: int
    coverage: float
    spearman: float | None
    all_pairs: float | None
    random_baseline: float | None


class AnalogyScore(NamedTuple):
    """Share of correct answers in one category of questions."""

    name: str
    questions: int
    n_covered: int
    accuracy: float | None
    nearest_baseline: float | None
    accuracy_with_inputs: float | None


def score_similarity(table: StoredTable, vocabulary: Vocabulary, path: Path) -> SimilarityScore:
    """Score a list of word pairs: lines of two words and a number, separated by whitespace, tabs, or commas."""
    pairs = [_pair(path, number, line) for number, line in _lines(path)]
    if len(pairs) < 2:
        raise InputError(f"{format_path(path)} has {len(pairs)} word pairs; at least 2 are needed")
    ids = {word: vocabulary.ids_of(word) for pair in pairs for word in pair[:2]}
    used = np.unique(np.array([token_id for word_ids in ids.values() for token_id in word_ids], np.int64))
    judged = np.array([score for _, _, score in pairs])
    single = np.array([len(ids[word_a]) == len(ids[word_b]) == 1 for word_a, word_b, _ in pairs])
    stored = to_float32(table.rows(used)).astype(np.float64)
    random = np.random.default_rng(0).standard_normal(stored.shape).astype(np.float32).astype(np.float64)
    cosines, of_random = (
        # Sums have the same cosines as means; a word without tokens gets zeros.
        np.array(
            [_cosine(*(rows[np.searchsorted(used, ids[word])].sum(axis=0) for word in pair[:2])) for pair in pairs]
        )
        for rows in (stored, random)
    )
    scores = spearman(cosines[single], judged[single]), spearman(cosines, judged), spearman(of_random, judged)
    return SimilarityScore(path.stem, len(pairs), float(single.mean()), *scores)


def score_analogies(
    table: StoredTable, vocabulary: Vocabulary, path: Path, progress: Progress = no_progress
) -> list[AnalogyScore]:
    """Score a list of questions `a b c d` (a is to b as c is to d) by category and overall."""
    questions, names = list[list[int]](), list[str]()  # ids, -1 for a word that is not a single token; categories
    name = path.stem
    for number, line in _lines(path):
        if line.startswith(":"):
            name = line[1:].strip()
            continue
        words = line.split()
        if len(words) != 4:
            raise InputError(f"{format_path(path)}, line {number}: expected four words, found {len(words)}")
        ids = [vocabulary.ids_of(word) for word in words]
        questions.append([word_ids[0] if len(word_ids) == 1 else -1 for word_ids in ids])
        names.append(name)
    correct = _answers(table, vocabulary, np.array(questions, np.int64).reshape(-1, 4), progress)
    scores, categories = [], np.array(names, object)
    groups = [(name, correct[categories == name]) for name in dict.fromkeys(names)]
    for name, answers in [*groups, ("all", correct)]:
        covered = answers[~np.isnan(answers[:, 0])]
        means = covered.mean(axis=0).tolist() if len(covered) else (None, None, None)
        scores.append(AnalogyScore(name, len(answers), len(covered), *means))
    return scores


def _answers(table: StoredTable, vocabulary: Vocabulary, questions: Ids, progress: Progress) -> Numbers:
    """Return which questions arithmetic, the nearest token, and all inputs answer (N, 3); NaN for skipped questions."""
    allowed = vocabulary.allowed(words_only=True)
    correct = np.full((len(questions), 3), np.nan)
    single = np.flatnonzero((questions >= 0).all(axis=1))
    for start in range(0, len(single), BATCH):
        which = single[start : start + BATCH]
        rows = to_float32(table.rows(questions[which])).astype(np.float64)
        with np.errstate(all="ignore"):
            unit = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
            arithmetic = unit[:, 1] - unit[:, 0] + unit[:, 2]
        usable = np.isfinite(unit).all(axis=(1, 2)) & unit.any(axis=2).all(axis=1) & arithmetic.any(axis=1)
        which = which[usable]
        for column, queries in ((0, arithmetic[usable]), (1, unit[usable, 2])):
            answers, _ = nearest(table, queries, 4, allowed=allowed)
            excluded = (answers[:, :, None] == questions[which, None, :3]).any(axis=-1)
            first = np.take_along_axis(answers, excluded.argmin(axis=1)[:, None], 1)[:, 0]
            correct[which, column] = first == questions[which, 3]
            if column == 0:
                correct[which, 2] = answers[:, 0] == questions[which, 3]
        progress(min(start + BATCH, len(single)), len(single))
    return correct


def spearman(scores_a: Numbers, scores_b: Numbers) -> float | None:
    """Rank correlation with averaged ranks for ties; None if a side is constant or not finite."""
    if len(scores_a) < 2 or not (np.isfinite(scores_a).all() and np.isfinite(scores_b).all()):
        return None
    first, second = (ranks - ranks.mean() for ranks in (_ranks(scores_a), _ranks(scores_b)))
    scale = float(np.sqrt((first @ first) * (second @ second)))
    return float(first @ second) / scale if scale else None


def _ranks(values: Numbers) -> Numbers:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def _cosine(vector_a: Numbers, vector_b: Numbers) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(vector_a @ vector_b / (np.linalg.norm(vector_a) * np.linalg.norm(vector_b))))


def _pair(path: Path, number: int, line: str) -> tuple[str, str, float]:
    try:
        word_a, word_b, score = line.replace(",", "\t").split()
        judged = float(score)
        if not math.isfinite(judged):
            raise ValueError(score)
        return word_a, word_b, judged
    except ValueError:
        raise InputError(
            f"{format_path(path)}, line {number}: expected two words and a number, found {quote(line[:60])}"
        ) from None


def _lines(path: Path) -> Iterable[tuple[int, str]]:
    """Yield the lines of a text file with their numbers, without empty lines and comments."""
    check_kind(path, "file", "special")
    try:
        with file_errors(path), path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if len(line) > MAX_LINE:
                    raise InputError(f"{format_path(path)}, line {number} has more than {MAX_LINE} characters")
                if line.strip() and not line.startswith("#"):
                    yield number, line.strip()
    except UnicodeDecodeError:
        raise InputError(f"{format_path(path)} is not valid UTF-8") from None
