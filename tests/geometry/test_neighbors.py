"""Neighbors and analogies of real models."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tokenizers
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

import inlayer
from inlayer.errors import IdRangeError, InputError
from inlayer.geometry.map_page import encode_words
from inlayer.geometry.neighbors import find_analogy, find_neighbors
from inlayer.geometry.vocabulary import Vocabulary
from inlayer.tables.stored_table import StoredTable
from inlayer.tokenizers.huggingface import HuggingFaceTokenizer

JOINER = "\u200d"  # BERT's normalizer removes it


@pytest.fixture(scope="module")
def model() -> inlayer.Model:
    return inlayer.load("default")


def word_pieces(*words: str) -> Vocabulary:
    vocab = {token: number for number, token in enumerate(("[UNK]", *words))}
    tokenizer = tokenizers.Tokenizer(WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = BertNormalizer(), BertPreTokenizer()
    return Vocabulary(HuggingFaceTokenizer(tokenizer.to_str().encode()), len(vocab))


def plain(
    model: inlayer.Model, query: npt.NDArray[Any], k: int, allowed: npt.NDArray[np.bool_]
) -> list[tuple[int, float]]:
    rows = model.table.weight.astype(np.float64)
    with np.errstate(all="ignore"):  # the padding row has no direction
        cosines = rows @ query / np.linalg.norm(rows, axis=1) / np.linalg.norm(query)
    cosines[~allowed | ~np.isfinite(cosines)] = -9
    return [(int(i), float(cosines[i])) for i in np.argsort(-cosines, kind="stable")[:k]]


def test_neighbors_of_a_word_equal_a_plain_search(model: inlayer.Model) -> None:
    token_id = model.tokenizer.encode(" king")[0]
    allowed = model.vocabulary.allowed()
    allowed[token_id] = False
    expected = plain(model, model.table.rows(token_id).astype(np.float64), 10, allowed)
    found = model.neighbors("king")
    assert [one.id for one in found] == [i for i, _ in expected]
    np.testing.assert_allclose([one.score for one in found], [score for _, score in expected], atol=1e-6)
    assert found[0].text == model.tokenizer.decode([found[0].id])


def test_query_can_be_a_word_a_text_an_id_or_a_vector(model: inlayer.Model) -> None:
    token_id = model.tokenizer.encode(" king")[0]
    by_word = model.neighbors("king", 5)
    assert model.neighbors(token_id, 5) == by_word
    by_vector = model.neighbors(model.table.rows(token_id).astype(np.float32), 6)
    assert by_vector[0].id == token_id  # nothing is left out for a vector
    assert by_vector[1:] == by_word
    ids = model.tokenizer.encode(" the king of France", add_special_tokens=False)
    mean = model.table.rows(ids).astype(np.float32).mean(axis=0)
    from_mean = [one for one in model.neighbors(mean, 20) if one.id not in ids]
    assert model.neighbors("the king of France", 5) == from_mean[:5]


def test_filters(model: inlayer.Model) -> None:
    words = model.neighbors("seven", 20, words_only=True)
    assert all(one.text.strip().isalpha() for one in words)
    assert {" five", " four", " eight"} <= {one.text for one in words}
    special = Vocabulary(model.tokenizer, model.table.num_embeddings).special
    assert {model.tokenizer.special_tokens["<|endoftext|>"]} <= set(np.flatnonzero(special).tolist())
    everything = model.neighbors("seven", model.table.num_embeddings, include_special=True)
    assert len(everything) == model.table.num_embeddings - 2  # all rows except itself and the padding row
    assert len(model.neighbors("seven", model.table.num_embeddings)) < len(everything)
    assert all(
        "a" <= one.text.strip().lower()[0] <= "z"
        for one in model.neighbors("seven", 9, words_only=True, script="Latin")
    )
    assert model.neighbors("seven", 3, words_only=True, script="Cherokee") == []


def test_head_of_a_tied_model_is_its_table(model: inlayer.Model) -> None:
    assert model.neighbors("king", 3, table="head") == model.neighbors("king", 3)


def test_model_whose_class_has_no_head(model: inlayer.Model) -> None:
    bare = inlayer.load("default")
    bare.config = {**(model.config or {}), "architectures": ["LlamaModel"]}
    assert bare.is_tied  # by its config, as BERT's usually is
    with pytest.raises(InputError, match="default has no head; search its input table"):
        bare.neighbors("king", 3, table="head")


def test_model_without_tokenizer(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"table": np.eye(5, 3, dtype=np.float32) + 1}, tmp_path / "model.safetensors")
    bare = inlayer.load(tmp_path / "model.safetensors")
    found = bare.neighbors(0, 2)
    assert found[0].text == f"#{found[0].id}"
    with pytest.raises(InputError, match="no tokenizer, so words cannot be looked up; put one next to the weights"):
        bare.neighbors("king")
    with pytest.raises(InputError, match="no tokenizer"):
        bare.neighbors(0, words_only=True)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("",), {}, InputError, "the query is empty"),
        (("   ",), {}, InputError, "the query is empty"),
        ((10**9,), {}, IdRangeError, "outside 0..6143"),
        ((-1,), {}, IdRangeError, "outside 0..6143"),
        ((np.zeros(128),), {}, InputError, "zero or not finite"),
        ((np.zeros(3),), {}, InputError, "a vector of 128 numbers"),
        ((["king"],), {}, InputError, "pass a word, a text, a token id, or a vector"),
        (("king", 0), {}, InputError, "k is 0"),
        (("king",), {"script": "Klingon"}, InputError, "script 'Klingon' is unknown"),
        (("king",), {"table": "output"}, InputError, '"input" or "head"'),
    ],
)
def test_invalid_queries(
    model: inlayer.Model, arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        model.neighbors(*arguments, **options)


def test_a_word_without_tokens_is_an_error() -> None:
    table = StoredTable.from_array(np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match=r"'\\u200d' has no tokens"):
        find_neighbors(table, word_pieces("king"), JOINER, 1)


def test_analogy_and_its_baselines(model: inlayer.Model) -> None:
    ids = [model.tokenizer.encode(f" {word}")[0] for word in ("king", "man", "woman")]
    a, b, c = (row / np.linalg.norm(row) for row in model.table.rows(ids).astype(np.float64))
    found = model.analogy("king", "man", "woman", 5)
    allowed = model.vocabulary.allowed()
    assert [one.id for one in found.answers_with_inputs] == [i for i, _ in plain(model, a - b + c, 5, allowed)]
    texts = [text if text is None else text.strip().lower() for text in model.vocabulary.texts]
    excluded = [i for i, text in enumerate(texts) if text in {"king", "man", "woman"}]
    assert len(excluded) > 3  # "King" and "man", too
    allowed[excluded] = False
    assert [one.id for one in found.answers] == [i for i, _ in plain(model, a - b + c, 5, allowed)]
    assert [one.id for one in found.nearest_to_first] == [i for i, _ in plain(model, a, 5, allowed)]
    assert found.answers_with_inputs[0].id in ids


def test_a_variant_of_an_input_is_no_answer() -> None:
    vocabulary = word_pieces("king", "man", "woman", "King", "MAN", " woman", "queen", "##man")
    rows = np.eye(9, dtype=np.float32) + 0.1
    rows[6] = rows[3] + 0.01  # " woman"
    found = find_analogy(StoredTable.from_array(rows), vocabulary, ["king", "man", np.float32(rows[3])], 9)
    assert found.answers[0].text in {"woman", " woman"}  # a vector is no word
    others = {"[UNK]", "queen", "##man"}
    for woman in ("woman", 3, np.int64(3)):
        found = find_analogy(StoredTable.from_array(rows), vocabulary, ["king", "man", woman], 9)
        assert {one.text for one in found.answers} == {one.text for one in found.nearest_to_first} == others
        assert len(found.answers_with_inputs) == 9


def test_truncated_and_complete_words(model: inlayer.Model) -> None:
    words = "econom", "includ", "friend", "Monday", "with", "included", "friends", "suff", "advant", "grad"
    ids = {word: model.tokenizer.encode(f" {word}")[0] for word in words}
    vocabulary = model.vocabulary
    assert {word: bool(vocabulary.truncated[ids[word]]) for word in words[:5]} == {
        "econom": True, "includ": True, "friend": False, "Monday": False, "with": False
    }  # fmt: skip
    assert {word for word in words if vocabulary.inflected[ids[word]]} == {"friend", "friends", "included"}
    assert not ((vocabulary.truncated | vocabulary.inflected) & ~vocabulary.words).any()
    assert not (vocabulary.truncated & vocabulary.inflected).any()
    kinds = base64.b64decode(encode_words(vocabulary) or "")  # for a page
    assert [kinds[ids[word]] for word in ("econom", "friend", "Monday")] == [2, 3, 1]


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("wordllama", "minilm", "smollm2")]


@pytest.mark.parametrize("name", ["default", *SLOW])
def test_whole_words_of_every_kind_of_tokenizer(name: str) -> None:
    """Byte-level BPE, SentencePiece and WordPiece mark spaces differently."""
    vocabulary = inlayer.load(name).vocabulary
    words = {(vocabulary.texts[i] or "").replace("▁", " ").strip() for i in np.flatnonzero(vocabulary.words)}
    assert {"king", "the", "world"} <= words
    assert not {"##ing", "ession", "[CLS]", "<s>"} & words
    assert all(word.replace("'", "").replace("’", "").replace("-", "").isalpha() for word in words)
