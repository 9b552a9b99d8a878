"""TableModule in a SentenceTransformer: encode, save, load."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file
from sentence_transformers import SentenceTransformer

import inlayer
from inlayer.errors import InputError
from inlayer.integrations.sentence_transformers import TableModule

TEXTS = ["I love dogs", "", "naïve 🙂", "the " * 700]


@pytest.mark.parametrize("weighted", [False, True])
def test_encodes_saves_and_loads(tmp_path, weighted):
    model = inlayer.load("default")
    weights = inlayer.Weighting.fit(model, TEXTS * 3) if weighted else None
    ours = SentenceTransformer(modules=[TableModule("default", weights=weights)], device="cpu")
    expected = model.encode(TEXTS, weights=weights)
    np.testing.assert_array_equal(ours.encode(TEXTS), expected)
    assert ours.get_embedding_dimension() == 128
    ours.save(str(tmp_path / "saved"))
    again = SentenceTransformer(str(tmp_path / "saved"), device="cpu", trust_remote_code=True)
    np.testing.assert_array_equal(again.encode(TEXTS), expected)
    opened = inlayer.load(tmp_path / "saved")  # without sentence-transformers
    np.testing.assert_array_equal(opened.encode(TEXTS), model.encode(TEXTS))


def test_token_weights_of_a_model2vec_model_are_saved(tmp_path):
    folder, default = tmp_path / "model2vec", inlayer.load("default")
    folder.mkdir()
    rows, rng = default.table.num_embeddings, np.random.default_rng(0)
    tensors = {"embeddings": rng.random((50, 4)), "mapping": rng.integers(0, 50, rows), "weights": rng.random(rows)}
    save_file(tensors, folder / "model.safetensors")
    (folder / "tokenizer.json").write_bytes(default.tokenizer.data)
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))
    module, expected = TableModule(folder), inlayer.load(folder).encode(TEXTS)
    SentenceTransformer(modules=[module], device="cpu").save(str(tmp_path / "saved"))
    np.testing.assert_array_equal(inlayer.load(tmp_path / "saved").encode(TEXTS), expected)
    again = pickle.loads(pickle.dumps(module))  # as in a pool of processes
    np.testing.assert_array_equal(again(again.preprocess(TEXTS))["sentence_embedding"], expected)
    with pytest.raises(InputError, match="pool is 'none'"):
        TableModule(folder, pool="none")


def test_saving_again_leaves_nothing_of_the_module_before(tmp_path):
    weights = inlayer.Weighting.fit(inlayer.load("default"), TEXTS * 3)
    for weighting in (weights, None):
        SentenceTransformer(modules=[TableModule("default", weights=weighting)], device="cpu").save(str(tmp_path))
    again = SentenceTransformer(str(tmp_path), device="cpu", trust_remote_code=True)
    np.testing.assert_array_equal(again.encode(TEXTS), inlayer.load("default").encode(TEXTS))


@pytest.mark.parametrize("value", [None, 3])
def test_what_is_not_a_text_is_an_error(value):
    ours = SentenceTransformer(modules=[TableModule("default")], device="cpu")
    with pytest.raises(TypeError, match=r"text \d is (None|an int), not a str"):
        ours.encode(["a", value])


def test_prompt_is_prepended():
    ours = SentenceTransformer(modules=[TableModule("default", pool="max")], device="cpu")
    np.testing.assert_array_equal(
        ours.encode("dogs", prompt="query: "), inlayer.load("default").encode("query: dogs", pool="max")
    )


def test_a_model_without_tokenizer_json_cannot_be_saved(tmp_path):
    module = TableModule("default")
    module.tokenizer = inlayer.ByteTokenizer()
    with pytest.raises(InputError, match=r"default has no tokenizer\.json"):
        module.save(str(tmp_path))
