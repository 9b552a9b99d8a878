"""Scores on word lists, against scipy and plain loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import inlayer
from inlayer.errors import InputError, MissingFileError
from inlayer.geometry.evaluation import score_analogies, score_similarity, spearman
from inlayer.tables.stored_table import StoredTable
from tests.geometry.test_neighbors import JOINER, word_pieces

PAIRS = "king queen 9\nseven eight 8.5\nLondon Paris 8\nking seven 1\nqueen London 2\nparliament banana 0.5\n"
QUESTIONS = ": family\nking man woman queen\nking queen man woman\nking man woman man\n: towns\nunbelievable a b c\n"


@pytest.fixture(scope="module")
def model() -> inlayer.Model:
    return inlayer.load("default")


def test_spearman_equals_scipy() -> None:
    random = np.random.default_rng(0)
    one, other = random.integers(0, 9, 200).astype(float), random.standard_normal(200)
    assert spearman(one, other) == pytest.approx(spearmanr(one, other).statistic, abs=1e-12)
    assert spearman(one, one) == pytest.approx(1)
    assert spearman(one, np.ones(200)) is None
    assert spearman(one, np.full(200, np.nan)) is None


def test_similarity(tmp_path: Path, model: inlayer.Model) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text("# a comment\n\n" + PAIRS)
    score = score_similarity(model.table, model.vocabulary, file)
    pairs = [line.split() for line in PAIRS.splitlines()]
    ids = {word: model.vocabulary.ids_of(word) for line in pairs for word in line[:2]}
    vectors = {word: model.table.rows(found).astype(np.float64).mean(axis=0) for word, found in ids.items()}
    cosines = [
        vectors[one] @ vectors[two] / np.linalg.norm(vectors[one]) / np.linalg.norm(vectors[two])
        for one, two, _ in pairs
    ]
    judged = [float(line[2]) for line in pairs]
    single = [len(ids[one]) == len(ids[two]) == 1 for one, two, _ in pairs]
    assert (score.name, score.pairs, score.coverage) == ("pairs", 6, pytest.approx(np.mean(single)))
    assert score.all_pairs == pytest.approx(spearmanr(cosines, judged).statistic)
    kept = [index for index, one in enumerate(single) if one]
    expected = spearmanr([cosines[i] for i in kept], [judged[i] for i in kept]).statistic
    assert score.spearman == pytest.approx(expected)
    assert score.random_baseline is not None
    assert abs(score.random_baseline) < 1


def test_analogies(tmp_path: Path, model: inlayer.Model) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(QUESTIONS)
    family, towns, everything = score_analogies(model.table, model.vocabulary, file)
    assert (family.name, family.questions, family.n_covered) == ("family", 3, 3)
    assert (towns.questions, towns.n_covered, towns.accuracy) == (1, 0, None)
    assert (everything.questions, everything.n_covered) == (4, 3)
    right = []
    for line in QUESTIONS.splitlines()[1:4]:
        a, b, c, answer = line.split()
        found = model.analogy(b, a, c, 1, words_only=True).answers[0]
        right.append(found.text.strip() == answer)
    assert family.accuracy == pytest.approx(np.mean(right))


def test_scores_do_not_depend_on_the_scale(tmp_path: Path, model: inlayer.Model) -> None:
    pairs, questions = tmp_path / "pairs.txt", tmp_path / "questions.txt"
    pairs.write_text(PAIRS)
    questions.write_text(QUESTIONS)
    huge = StoredTable.from_array(model.table.weight.astype(np.float32) * np.float32(2.0**120))
    score, expected = (score_similarity(table, model.vocabulary, pairs) for table in (huge, model.table))
    assert score == expected
    assert score_analogies(huge, model.vocabulary, questions) == score_analogies(
        model.table, model.vocabulary, questions
    )


@pytest.mark.parametrize("value", [0, np.nan])
def test_questions_with_an_unusable_row_are_not_covered(tmp_path: Path, model: inlayer.Model, value: float) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(QUESTIONS)
    expected = score_analogies(model.table, model.vocabulary, file)[0][3:]
    file.write_text(QUESTIONS + ": family\nseven man woman queen\n: again\nking man woman seven\n")
    rows = model.table.weight.astype(np.float32)
    rows[model.vocabulary.ids_of("seven")] = value
    table = StoredTable.from_array(rows)
    family, towns, again, everything = score_analogies(table, model.vocabulary, file)
    assert [score.n_covered for score in (family, towns, again, everything)] == [3, 0, 0, 3]
    assert family[3:] == everything[3:] == expected


def test_a_category_in_two_places(tmp_path: Path, model: inlayer.Model) -> None:
    file = tmp_path / "questions.txt"
    file.write_text(": a\nunbelievable a b c\n: b\nking queen man woman\n: a\nking man woman man\n")
    a, b, _ = score_analogies(model.table, model.vocabulary, file)
    assert (a.questions, a.n_covered, a.accuracy) == (2, 1, 0)
    assert (b.questions, b.n_covered, b.accuracy) == (1, 1, 1)


def test_words_without_tokens_are_not_covered(tmp_path: Path) -> None:
    vocabulary, table = word_pieces("king", "queen", "man"), StoredTable.from_array(np.eye(4, 3, dtype=np.float32) + 1)
    (tmp_path / "pairs.txt").write_text(f"king queen 9\nking man 3\nqueen man 1\nking {JOINER} 2\n")
    score = score_similarity(table, vocabulary, tmp_path / "pairs.txt")
    assert (score.pairs, score.coverage, score.all_pairs) == (4, 0.75, None)
    assert score.spearman is not None
    (tmp_path / "questions.txt").write_text(f"king queen man {JOINER}\n")
    assert [one.n_covered for one in score_analogies(table, vocabulary, tmp_path / "questions.txt")] == [0, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [("one two\n", "line 1: expected two words and a number"), ("a b 1\n", "has 1 word pairs"), ("x" * 5000, "1000")],
)
def test_malformed_pairs(tmp_path: Path, model: inlayer.Model, text: str, message: str) -> None:
    file = tmp_path / "pairs.txt"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        score_similarity(model.table, model.vocabulary, file)


def test_unreadable_lists(tmp_path: Path, model: inlayer.Model) -> None:
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match="not valid UTF-8"):
        score_similarity(model.table, model.vocabulary, tmp_path / "bytes.txt")
    with pytest.raises(MissingFileError, match=r"missing\.txt: not found"):
        score_similarity(model.table, model.vocabulary, tmp_path / "missing.txt")
    (tmp_path / "three.txt").write_text("a b c\n")
    with pytest.raises(InputError, match="line 1: expected four words, found 3"):
        score_analogies(model.table, model.vocabulary, tmp_path / "three.txt")
