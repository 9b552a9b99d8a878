"""Comparing models: the rotation against scipy, tokens and rows against written-out cases."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tokenizers
from safetensors.numpy import save_file
from scipy.linalg import orthogonal_procrustes
from tokenizers.models import BPE, WordPiece

import inlayer
from inlayer.errors import InputError
from inlayer.geometry.compare import align_points, compare, compare_tables, match_rows, tokens_by_bytes
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.tables.stored_table import StoredTable
from inlayer.tokenizers import WordTokenizer
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer
from tests.geometry.test_nearest import stored

WORDS = [f"word{number}" for number in range(60)]


def make(folder: Path, words: list[str], rows: npt.NDArray[Any]) -> tuple[StoredTable, Vocabulary]:
    folder.mkdir()
    tokenizer = WordTokenizer.from_text(" ".join(words))
    table = stored(folder, rows)
    return table, Vocabulary(tokenizer, len(rows))


def size(words: list[str]) -> int:
    return WordTokenizer.from_text(" ".join(words)).get_vocab_size()


def tokens_of(model: WordPiece | BPE, tokens: int) -> dict[bytes, int]:
    tokenizer = HuggingFaceTokenizer(tokenizers.Tokenizer(model).to_str().encode())
    return tokens_by_bytes(Vocabulary(tokenizer, tokens))


def numbered(*tokens: str) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def test_word_pieces_are_matched_as_they_occur_in_text() -> None:
    vocab = numbered("[CLS]", "king", "##ing", "##,", ",", "2016", "г")
    found = tokens_of(WordPiece(vocab, unk_token="[CLS]"), len(vocab))
    assert found == {b"[CLS]": 0, b" king": 1, b"ing": 2, b"##,": 3, b",": 4, b" 2016": 5, " г".encode(): 6}
    vocab = numbered("[CLS]", "king", "@@ing", "##ing")
    found = tokens_of(WordPiece(vocab, unk_token="[CLS]", continuing_subword_prefix="@@"), len(vocab))
    assert found == {b"[CLS]": 0, b" king": 1, b"ing": 2, b"##ing": 3}
    vocab = numbered("king", "##ing", "##x", "##")  # other vocabularies have headings of Markdown
    assert list(tokens_of(BPE(vocab, []), len(vocab))) == [token.encode() for token in vocab]


def test_fine_tuned_model_is_compared_directly(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((size(WORDS), 8)).astype(np.float32)
    tuned = rows.copy()
    vocabulary = Vocabulary(WordTokenizer.from_text(" ".join(WORDS)), len(rows))
    moved = [token_id for token_id, text in enumerate(vocabulary.texts) if text in {"word7", "word9"}]
    tuned[moved[0]] *= -1
    tuned[moved[1]] *= 2
    found = compare_tables(match_rows(make(tmp_path / "a", WORDS, rows), make(tmp_path / "b", WORDS, tuned)))
    assert (found.n_shared, found.only_a, found.only_b, found.rotated) == (len(rows), [], [], False)
    assert found.n_equal == len(rows) - 2
    assert [(row.text, round(row.cosine, 5)) for row in found.moved] == [
        (vocabulary.text(moved[0]), -1.0), (vocabulary.text(moved[1]), 1.0)
    ]  # fmt: skip
    assert found.moved[1].norm_b == pytest.approx(2 * found.moved[1].norm_a)


def test_rows_without_a_cosine_are_named(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((size(WORDS), 8)).astype(np.float32)
    rows[11] = 0  # in both: unchanged
    tuned = rows.copy()
    tuned[3], tuned[5, 2], tuned[7], tuned[9] = np.nan, -np.inf, 0, -tuned[9]
    a, b = make(tmp_path / "a", WORDS, rows), make(tmp_path / "b", WORDS, tuned)
    found = compare_tables(match_rows(a, b))
    assert (found.n_equal, found.n_damaged, [row.id_b for row in found.moved]) == (len(rows) - 4, 3, [9])
    assert [(row.text, row.id_a) for row in found.damaged] == [(a[1].text(row), row) for row in (3, 5, 7)]
    np.testing.assert_array_equal([row.norm_b for row in found.damaged], [np.nan, np.inf, 0])
    assert [row.norm_a for row in found.damaged] == pytest.approx(np.linalg.norm(rows[[3, 5, 7]], axis=1).tolist())
    assert [row.id_b for row in compare_tables(match_rows(a, b), top=1).damaged] == [3]
    nothing = compare_tables(match_rows(a, make(tmp_path / "c", WORDS, np.full_like(rows, np.nan))))
    assert (nothing.rotated, nothing.n_damaged, nothing.overlap) == (False, len(rows), None)
    assert np.isnan(nothing.median_cosine)


def test_tables_without_tokenizers_are_matched_by_id(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    tuned = rows.copy()
    tuned[7] *= -1
    for name, values in (("a", rows), ("b", tuned), ("c", rows[:30])):
        (tmp_path / name).mkdir()
        save_file({"embeddings": values}, tmp_path / name / "model.safetensors")
    found = compare(tmp_path / "a", tmp_path / "b")
    assert (found.n_shared, found.n_equal, found.matched_by, found.rotated) == (40, 39, "id", False)
    assert [(row.text, row.id_a, row.id_b) for row in found.moved] == [("#7", 7, 7)]
    assert repr(found) == "<ModelComparison: 40 shared tokens, 39 equal rows, median cosine 1.000>"
    expected = re.escape(f"{tmp_path / 'a'} and {tmp_path / 'c'} cannot be compared without a tokenizer")
    with pytest.raises(InputError, match=expected):
        compare(tmp_path / "a", tmp_path / "c")
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'a'} cannot be compared without")):
        compare("default", tmp_path / "a")


def test_huge_rows_are_compared(tmp_path: Path) -> None:
    """Their squares overflow float32."""
    rows = np.random.default_rng(0).standard_normal((size(WORDS), 8)).astype(np.float32)
    huge = rows * np.float32(2.0**125)
    found = compare_tables(match_rows(make(tmp_path / "a", WORDS, rows), make(tmp_path / "b", WORDS, huge)), top=1)
    assert (found.rotated, found.n_damaged, found.overlap) == (False, 0, 1.0)
    assert found.median_cosine == pytest.approx(1.0)
    assert found.moved[0].norm_b == pytest.approx(2.0**125 * found.moved[0].norm_a)


@pytest.mark.parametrize("same", [slice(15), slice(5, None)])
def test_overlap_of_a_copy_is_one(tmp_path: Path, same: slice) -> None:
    """With equal rows, the last of which is not among its own eleven nearest, and with few rows that are not zero."""
    rows = np.random.default_rng(0).standard_normal((size(WORDS), 8)).astype(np.float32)
    rows[same] = rows[0] if same.start is None else 0
    found = compare_tables(match_rows(make(tmp_path / "a", WORDS, rows), make(tmp_path / "b", WORDS, rows)))
    assert found.overlap == 1.0


def test_rotated_space_is_aligned_as_by_scipy(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((size(WORDS), 8)).astype(np.float32)
    rotation = np.linalg.qr(random.standard_normal((8, 8)))[0].astype(np.float32)
    turned = rows @ rotation + 0.1 * random.standard_normal(rows.shape).astype(np.float32)
    found = compare_tables(
        match_rows(make(tmp_path / "a", WORDS, rows), make(tmp_path / "b", WORDS, turned)), top=10**6
    )
    assert found.rotated
    assert found.median_cosine > 0.9
    assert found.overlap is not None
    assert found.overlap > 0.5
    unit_a, unit_b = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (rows, turned))
    matrix, _ = orthogonal_procrustes(unit_b, unit_a)
    expected = ((unit_b @ matrix) * unit_a).sum(axis=1)
    ours = {row.id_a: row.cosine for row in found.moved}
    np.testing.assert_allclose([ours[i] for i in range(len(rows))], expected, atol=1e-5)


def test_other_width_and_other_tokens(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    one, other = WORDS[:40], WORDS[20:]
    a = make(tmp_path / "a", one, random.standard_normal((size(one), 8)).astype(np.float32))
    b = make(tmp_path / "b", other, random.standard_normal((size(other), 5)).astype(np.float32))
    found = compare_tables(match_rows(a, b))
    assert found.rotated
    assert set(WORDS[:20]) <= set(found.only_a)
    assert set(WORDS[40:]) <= set(found.only_b)
    assert 20 <= found.n_shared <= 24  # and the special tokens


def test_maps_are_aligned_as_by_scipy(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    rows = random.standard_normal((size(WORDS), 8)).astype(np.float32)
    table = make(tmp_path / "a", WORDS, rows)
    shared = match_rows(table, table)
    points = random.standard_normal((len(rows), 2)).astype(np.float32)
    points[3] = np.nan  # a row without a direction
    angle = np.array([[0.6, 0.8], [0.8, -0.6]], np.float32)  # rotated and mirrored
    noise = 0.05 * random.standard_normal(points.shape).astype(np.float32)
    aligned = align_points(points, 3 * points @ angle + noise + 7, shared)
    drawn = np.arange(len(rows)) != 3
    np.testing.assert_allclose(aligned[drawn], points[drawn], atol=0.1)
    assert np.isnan(aligned[3]).all()
    one, other = points[drawn], (3 * points @ angle + noise + 7)[drawn]
    one, other = one - one.mean(axis=0), other - other.mean(axis=0)
    rotation, _ = orthogonal_procrustes(other, one)
    expected = other @ rotation * (np.linalg.norm(one) / np.linalg.norm(other)) + points[drawn].mean(axis=0)
    np.testing.assert_allclose(aligned[drawn], expected, atol=1e-4)


@pytest.mark.slow
def test_real_models() -> None:
    same = compare("default", inlayer.load("default"))
    assert (same.n_equal, same.moved, same.overlap, same.rotated) == (same.n_shared, [], 1.0, False)
    found = compare("default", "smollm2", top=3)
    assert found.rotated
    assert found.n_shared > 5_000
    assert 0.05 < (found.overlap or 0) < 0.9


def test_models_without_common_tokens_or_tokenizer(tmp_path: Path) -> None:
    rows = np.ones((5, 3), np.float32)
    bare = (make(tmp_path / "a", WORDS, np.ones((size(WORDS), 3), np.float32))[0], Vocabulary(None, 5))
    named = make(tmp_path / "b", WORDS, np.ones((size(WORDS), 3), np.float32))
    with pytest.raises(InputError, match="without a tokenizer"):
        compare_tables(match_rows(bare, named))
    assert rows.shape == (5, 3)
