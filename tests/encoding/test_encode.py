"""encode, compared with a plain float64 computation on the ids of each tokenizer's own library."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import save_file

import inlayer
from inlayer.encoding import row_pooling
from inlayer.encoding.encode import TokenVectors, batches
from inlayer.errors import DtypeError, InputError, TextError
from inlayer.tables import StoredTable
from tests.tokenizers.samples import hostile_texts

TEXTS = [
    "",
    "I love dogs",
    "  ",
    "naïve 🙂 你好",
    "the " * 500,
    "a<s>b<|end|>",
    "x",
    "a b c",
    "c a",
    *hostile_texts(60, 3, ["<s>"]),
]
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


class Reference:
    """A model with any tokenizer and table: what `Encoder` uses of a `Model`."""

    def __init__(
        self, folder: Path, tokenizer: Any, dtype: str = "float32", width: int = 24, bias: float = 0.5
    ) -> None:
        rows = max([300, tokenizer.get_vocab_size(), *(one + 1 for one in tokenizer.special_ids)]) + 40
        values = np.random.default_rng(0).standard_normal((rows, width)) + bias
        save_file({"embeddings": values.astype(DTYPES[dtype])}, folder / "model.safetensors")
        self.model = inlayer.load(folder)
        self.model.__dict__["tokenizer"] = tokenizer
        self.rows = values.astype(DTYPES[dtype]).astype(np.float32).astype(np.float64)

    def vector(self, text: str, pool: str) -> np.ndarray:
        tokenizer = self.model.tokenizer
        ids = [one for one in tokenizer.encode(text, add_special_tokens=False) if one not in tokenizer.special_ids]
        if not ids:
            return np.zeros(self.rows.shape[1])
        rows = self.rows[ids]
        return {"mean": rows.mean(0), "max": rows.max(0), "first": rows[0], "last": rows[-1]}[pool]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pool", ["mean", "first", "last", "max"])
def test_equals_float64_for_every_tokenizer(tokenizer, tmp_path, dtype, pool):
    reference = Reference(tmp_path, tokenizer, dtype)
    ours = reference.model.encode(TEXTS, pool=pool)
    theirs = np.stack([reference.vector(text, pool) for text in TEXTS])
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert np.abs(theirs).max() > 0.1  # control: not all zeros
    units = reference.model.encode(TEXTS, pool=pool, normalize=True, dim=np.int64(7))  # type: ignore[arg-type]
    cut = theirs[:, :7]
    norms = np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(units, np.where(norms > 0, cut / np.where(norms, norms, 1), 0), atol=1e-6)


@pytest.mark.parametrize("source", ["default", "wordllama", "minilm", "smollm2"])
def test_equals_float64_on_real_models(source):
    model = inlayer.load(source)
    whole, special = np.asarray(model.table.weight).astype(np.float64), model.tokenizer.special_ids
    for text, ours in zip(TEXTS, model.encode(TEXTS), strict=True):
        ids = [one for one in model.tokenizer.encode(text, add_special_tokens=False) if one not in special]
        np.testing.assert_allclose(ours, whole[ids].mean(0) if ids else 0 * whole[0], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("sums", ["sum_with_torch", "sum_with_scipy", "sum_with_numpy"])
def test_every_kernel_batch_size_and_thread_count_gives_the_same_bits(monkeypatch, sums):
    model = inlayer.load("default")
    texts = TEXTS * 20
    expected = np.stack([model.encode(text) for text in texts])
    monkeypatch.setattr(row_pooling, "choose_sums", lambda: getattr(row_pooling, sums))
    monkeypatch.setattr(row_pooling, "MAX_NUMPY_IDS", 0)
    for batch_size in (None, 1, 7, 1000):
        np.testing.assert_array_equal(model.encode(texts, batch_size=batch_size), expected)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        np.testing.assert_array_equal(model.encode(texts), expected)
    finally:
        torch.set_num_threads(threads)
    monkeypatch.setattr(row_pooling, "MAX_TABLE_BYTES", 0)  # as for a large table: only the rows of the batch
    np.testing.assert_array_equal(inlayer.load("default").encode(texts), expected)


def test_long_texts_are_exact_and_not_truncated(tmp_path):
    reference = Reference(tmp_path, inlayer.ByteTokenizer(), bias=20.0)
    text = "abcdefgh" * 20_000
    ours, theirs = reference.model.encode(text), reference.vector(text, "mean")
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    naive = np.zeros(24, np.float32)
    for row in reference.rows[reference.model.tokenizer.encode(text, add_special_tokens=False)].astype(np.float32):
        naive += row
    assert np.abs(naive / 160_000 / theirs - 1).max() > 1e-5  # control: one float32 sum is not


@pytest.mark.parametrize("sums", ["sum_with_torch", "sum_with_numpy"])
def test_long_texts_are_summed_in_blocks_to_the_same_bits(monkeypatch, sums):
    model, texts = inlayer.load("default"), ["the " * 3000, "a", "", "naïve " * 500, "b"]
    expected, sizes = model.encode(texts), []

    def recorded(rows, ids, offsets):
        sizes.append(offsets.size - 1)
        return getattr(row_pooling, sums)(rows, ids, offsets)

    monkeypatch.setattr(row_pooling, "choose_sums", lambda: recorded)
    monkeypatch.setattr(row_pooling, "MAX_NUMPY_IDS", 0)
    for segments in (10**6, 7, 1):
        sizes.clear()
        monkeypatch.setattr(row_pooling, "BLOCK_VALUES", segments * 128)
        np.testing.assert_array_equal(model.encode(texts), expected)
        assert max(sizes) <= segments + len(texts)
        assert (len(sizes) > 1) == (segments < 10**6)


@pytest.mark.parametrize("largest", [1.0, 5.0, 3000.0])
def test_equal_tokens_whose_rounding_errors_add_up_are_exact(tmp_path, monkeypatch, largest):
    rows = np.random.default_rng(0).uniform(-largest, largest, (300, 4096)).astype(np.float32)
    save_file({"embeddings": rows}, tmp_path / "model.safetensors")
    model = inlayer.load(tmp_path)
    model.__dict__["tokenizer"] = inlayer.ByteTokenizer()

    def error(text: str) -> float:
        (row,) = {*model.tokenizer.encode(text)}
        return float(np.abs(model.encode(text) - rows[row].astype(np.float64)).max())

    assert max(error("a" * count) for count in (7, 31, 32, 33, 3000)) <= 1e-6 * largest
    monkeypatch.setattr(row_pooling, "SEGMENT", 4096)
    assert error("a" * 3000) > 1e-6 * largest  # control: one float32 sum is not


def test_one_text_many_texts_and_none():
    model = inlayer.load("default")
    assert model.encode("I love dogs").shape == (128,)
    assert model.encode(["I love dogs"]).shape == (1, 128)
    assert model.encode([]).shape == (0, 128)
    assert model.encode(text for text in ["a", "b"]).shape == (2, 128)
    assert not model.encode("").any()
    assert model.encode("x", dtype="float16").dtype == np.float16
    assert model.encode("x", dtype="bfloat16").dtype == ml_dtypes.bfloat16


def test_special_tokens_do_not_count():
    model = inlayer.load("default")
    (special, *_) = model.tokenizer.special_tokens
    np.testing.assert_array_equal(model.encode(special), 0)
    kept = [one for one in model.tokenizer.encode(f"dogs{special}") if one not in model.tokenizer.special_ids]
    np.testing.assert_allclose(
        model.encode(f"dogs{special}"), model.table.rows(kept).astype(np.float64).mean(0), atol=1e-6
    )


def test_token_vectors_have_ids_and_offsets():
    model = inlayer.load("default")
    found = model.encode(["I love dogs", "", "cats"], pool="none", batch_size=1)
    assert isinstance(found, TokenVectors)
    ids = model.tokenizer.encode_batch(["I love dogs", "", "cats"], add_special_tokens=False)
    np.testing.assert_array_equal(found.ids, ids.flat)
    np.testing.assert_array_equal(found.offsets, ids.offsets)
    np.testing.assert_array_equal(found.vectors, model.table.rows(ids.flat).astype(np.float32))
    one = model.encode("cats", pool="none")
    assert one.vectors.shape == (one.offsets[1], 128)
    assert model.encode([], pool="none").offsets.tolist() == [0]


def test_encode_iter_streams():
    model, taken = inlayer.load("default"), []

    def texts():
        for number in range(10):
            taken.append(number)
            yield f"text {number}"

    stream = model.encode_iter(texts(), batch_size=3)
    assert taken == []
    first = next(stream)
    assert (first.shape, len(taken)) == ((3, 128), 3)
    rest = np.concatenate([first, *stream])
    np.testing.assert_array_equal(rest, model.encode([f"text {number}" for number in range(10)]))


def test_encode_iter_streams_tokens_in_batches_of_bounded_size(monkeypatch):
    model, texts = inlayer.load("default"), ["I love dogs", "", "cats", "the " * 100, "", "x"]
    whole = model.encode(texts, pool="none")
    (everything,) = model.encode_iter(texts, pool="none")
    monkeypatch.setattr("inlayer.encoding.encode.TOKEN_VALUES", 6 * 128)
    parts = list(model.encode_iter(texts, pool="none"))
    assert [len(part.offsets) - 1 for part in parts] == [3, 1, 2]  # up to 6 tokens, or one text
    for name in ("vectors", "ids"):
        np.testing.assert_array_equal(getattr(everything, name), getattr(whole, name))
        np.testing.assert_array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
    np.testing.assert_array_equal(np.concatenate([np.diff(part.offsets) for part in parts]), np.diff(whole.offsets))
    (one,) = model.encode_iter(texts, pool="none", batch_size=6)  # a given size is kept
    assert len(one.offsets) == 7
    with pytest.raises(TextError, match="text 4 contains the lone surrogate"):
        list(model.encode_iter(["ok"] * 4 + ["\ud800"], batch_size=2))


def test_batches_are_bounded_in_characters(monkeypatch):
    monkeypatch.setattr("inlayer.encoding.encode.BATCH_CHARACTERS", 10)
    assert list(batches(["a" * 4] * 5 + ["b" * 30, "c"])) == [
        ["a" * 4] * 2,
        ["a" * 4] * 2,
        ["a" * 4],
        ["b" * 30],
        ["c"],
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "sum"}, "pool is 'sum'; it must be one of mean, first, last, max, none"),
        ({"dim": 0}, "dim is 0"),
        ({"dim": 129}, "dim is 129; it must be at most 128, the width of the vectors"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"dtype": None}, "dtype is None; it must be one of"),
        ({"normalize": "no"}, "normalize is 'no'; it must be True or False"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"show_progress": "yes"}, "show_progress is 'yes'; it must be True, False, or None"),
        ({"weights": "nowhere.safetensors"}, "nowhere.safetensors: not found"),
        ({"weights": 3}, "weights is an int"),
    ],
)
@pytest.mark.parametrize("texts", ["a", ["a"]])
def test_invalid_arguments(texts, options, message):
    with pytest.raises(inlayer.InlayerError, match=message):
        inlayer.load("default").encode(texts, **options)


def test_columns_of_pyarrow_are_texts():
    model, texts = inlayer.load("default"), ["I love dogs", "", "naïve"]
    for column in (pa.array(texts), pa.chunked_array([texts[:1], texts[1:]])):
        np.testing.assert_array_equal(model.encode(column), model.encode(texts))
        np.testing.assert_array_equal(np.concatenate([*model.encode_iter(column)]), model.encode(texts))
    with pytest.raises(DtypeError, match="text 1 is None"):
        model.encode(pa.array(["a", None]))


def test_integers_of_numpy_are_sizes():
    model = inlayer.load("default")
    np.testing.assert_array_equal(model.encode(["a", "b"], batch_size=np.int64(1)), model.encode(["a", "b"]))
    assert model.neighbors("king", np.int32(3)) == model.neighbors("king", 3)


def test_invalid_texts_are_named_by_their_place(monkeypatch):
    model = inlayer.load("default")
    with pytest.raises(TextError, match="text 4 contains the lone surrogate"):
        model.encode(["ok"] * 4 + ["\ud800"], batch_size=2)
    with pytest.raises(DtypeError, match="text 1 is an int"):
        model.encode(["ok", 3])
    with pytest.raises(DtypeError, match="texts is a bytes"):
        model.encode(b"ok")
    with pytest.raises(DtypeError, match="text 20000 is an int"):
        list(model.encode_iter(["ok"] * 20_000 + [3]))
    monkeypatch.setattr("inlayer.encoding.encode.BATCH_CHARACTERS", 10)
    with pytest.raises(DtypeError, match="text 1 is an int"):
        list(model.encode_iter(["a" * 11, 5]))
    for texts in (np.array("ok"), np.array(3), {"ok": 1}, {"ok"}, np.array([["ok"]])):
        with pytest.raises(DtypeError, match=r"texts is an? \w+; it must be a list of str"):
            model.encode(texts)
    with pytest.raises(DtypeError, match="texts is None"):
        model.encode(None)


def test_model_without_tokenizer_and_id_beyond_the_table(tmp_path):
    save_file({"embeddings": np.ones((20, 4), np.float32)}, tmp_path / "model.safetensors")
    model = inlayer.load(tmp_path)
    with pytest.raises(InputError, match="has no tokenizer"):
        model.encode("a")
    model.__dict__["tokenizer"] = inlayer.ByteTokenizer()
    with pytest.raises(inlayer.InlayerError, match=r"id 97 .* is outside 0\.\.19"):
        model.encode("a")
    with pytest.raises(inlayer.InlayerError, match=r"^text 2: id 97 at \[1\] is outside 0\.\.19"):
        model.encode(["\x01\x02", "\x03", "\x01a"])


def test_threads_share_a_model():
    model, texts = inlayer.load("default"), [f"text {number}" for number in range(300)]
    expected, found = inlayer.load("default").encode(texts), {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: model.encode(texts)})) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours in found.values():
        np.testing.assert_array_equal(ours, expected)


def test_large_tables_read_only_the_rows_of_a_batch(monkeypatch):
    monkeypatch.setattr(row_pooling, "MAX_TABLE_BYTES", 0)
    monkeypatch.setattr(StoredTable, "weight", property(lambda _: pytest.fail("the whole table was read")))
    inlayer.load("default").encode(TEXTS)


def test_encoding_without_torch_imports_no_torch():
    code = (
        "import sys, inlayer; v = inlayer.load('default').encode(['I love dogs'] * 3000);"
        "print(v.shape, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "(3000, 128) False\n"


def test_a_forked_process_does_not_wait_for_the_threads_of_torch():
    code = (
        "import os, torch, inlayer; model, texts = inlayer.load('default'), ['I love dogs'] * 30_000\n"
        "expected, child = model.encode(texts), os.fork()\n"
        "if child == 0: os._exit(0 if (model.encode(texts) == expected).all() else 1)\n"
        "print(os.waitpid(child, 0)[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600,
        env=os.environ | {"OMP_NUM_THREADS": "2"},
    )  # fmt: skip  # with one thread, torch starts none
    assert done.stdout == "0\n"


def test_progress_bar_is_shown_on_a_terminal(monkeypatch, capsys):
    model, texts = inlayer.load("default"), ["a", "b"]
    expected = model.encode(texts)
    np.testing.assert_array_equal(model.encode(texts, show_progress=True), expected)
    assert capsys.readouterr().err == ""  # not a terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    np.testing.assert_array_equal(model.encode(texts, show_progress=True), expected)
    assert "encoding" in capsys.readouterr().err


# ---- static models of other libraries


def static_folder(folder: Path, quantized: bool) -> Any:
    from model2vec import StaticModel
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str((Path(inlayer.__file__).parent / "samples/default/tokenizer.json").read_text())
    tokens, random = tokenizer.get_vocab_size(), np.random.default_rng(0)
    rows = 50 if quantized else tokens
    extra = (
        {"weights": random.uniform(size=tokens), "token_mapping": random.integers(0, rows, tokens)} if quantized else {}
    )
    model = StaticModel(random.standard_normal((rows, 8)).astype(np.float32), tokenizer, **extra)
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize("quantized", [False, True])
def test_model2vec_folders_give_what_model2vec_gives(tmp_path, quantized):
    theirs = static_folder(tmp_path / "static", quantized)
    model = inlayer.load(tmp_path / "static")
    texts = ["I love dogs", "", "text " * 30]
    np.testing.assert_allclose(model.encode(texts), theirs.encode(texts), atol=1e-6)
    assert model.table.rows([3, 4]).shape == (2, 8)
    assert len(model.neighbors("dogs", 3)) == 3


def test_int8_model2vec_folder_gives_what_model2vec_gives(tmp_path):
    from model2vec import StaticModel
    from model2vec.quantization import DType, quantize_embeddings

    theirs = static_folder(tmp_path / "static", False)
    rows = quantize_embeddings(theirs.embedding, DType.Int8)
    StaticModel(rows, theirs.tokenizer, normalize=True).save_pretrained(tmp_path / "int8")
    model, texts = inlayer.load(tmp_path / "int8"), ["I love dogs", "text " * 30]
    assert model.table_info.dtype == "I8"
    assert "returns unit vectors: encode(..., normalize=True)" in model.note
    np.testing.assert_array_equal(model.table.rows([3, 4]), rows[3:5].astype(np.float32))
    expected = StaticModel.from_pretrained(tmp_path / "int8").encode(texts)
    np.testing.assert_allclose(model.encode(texts, normalize=True), expected, atol=1e-6)


def test_static_embedding_folders_give_what_sentence_transformers_gives(tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str((Path(inlayer.__file__).parent / "samples/default/tokenizer.json").read_text())
    theirs = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    theirs.save(str(tmp_path / "static"))
    texts = ["I love dogs", "text " * 30]
    np.testing.assert_allclose(inlayer.load(tmp_path / "static").encode(texts), theirs.encode(texts), atol=1e-6)


def tokenizer_with_unknown(kind: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[UNK]", "[SEP]", "dog", "fox", "s"]
    if kind == "Unigram":
        tokenizer = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=0))
    else:
        tokenizer = Tokenizer(models.WordLevel(dict(zip(words, range(5), strict=True)), unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(words[:2])
    return tokenizer


@pytest.mark.parametrize("kind", ["WordLevel", "Unigram"])
@pytest.mark.parametrize("library", ["model2vec", "StaticEmbedding"])
def test_static_models_skip_the_tokens_that_their_library_skips(tmp_path, library, kind):
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from inlayer.integrations.sentence_transformers import TableModule

    rows, tokenizer = np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32), tokenizer_with_unknown(kind)
    texts = ["dog [UNK] fox", "dog [SEP] \u2603 fox", "\u2603", "", "fox s dog"]
    folder = tmp_path / "static"
    if library == "model2vec":
        theirs: Any = StaticModel(rows, tokenizer)
        theirs.save_pretrained(folder)
    else:
        module = StaticEmbedding(tokenizer, embedding_weights=rows)
        theirs = SentenceTransformer(modules=[module], device="cpu")
        theirs.save(str(folder))
    expected, model = theirs.encode(texts), inlayer.load(folder)
    np.testing.assert_allclose(model.encode(texts), expected, atol=1e-6)
    np.testing.assert_allclose(np.stack([model.encode(text) for text in texts]), expected, atol=1e-6)
    assert expected[2].any() == (library == "StaticEmbedding")  # control: the unknown token counts there
    assert np.abs(expected[1] - rows[[2, 3]].mean(0)).max() > 0.01  # control: [SEP] counts in both
    SentenceTransformer(modules=[TableModule(folder)], device="cpu").save(str(tmp_path / "saved"))
    np.testing.assert_allclose(inlayer.load(tmp_path / "saved").encode(texts), expected, atol=1e-6)


def test_similarity_is_the_cosine_of_every_pair():
    model = inlayer.load("default")
    a, b = ["I love dogs", ""], ["I love cats", "seven days", "I love dogs"]
    rows_a, rows_b = (model.encode(texts).astype(np.float64) for texts in (a, b))
    norms = np.outer(np.linalg.norm(rows_a, axis=1), np.linalg.norm(rows_b, axis=1))
    expected = np.divide(rows_a @ rows_b.T, norms, out=np.zeros((2, 3)), where=norms > 0)
    np.testing.assert_allclose(model.similarity(a, b), expected, atol=1e-6)
    np.testing.assert_allclose(model.similarity(a[0], b)[0], expected[0], atol=1e-6)
    with pytest.raises(InputError, match="pool is 'none', which returns one vector per token"):
        model.similarity(a, b, pool="none")


def test_none_is_not_the_sample(monkeypatch):
    monkeypatch.delenv("MODEL", raising=False)
    for opened in (inlayer.load, inlayer.inspect):
        with pytest.raises(DtypeError, match="source is None"):
            opened(os.environ.get("MODEL"))
