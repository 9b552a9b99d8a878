"""EmbedColumn in `datasets.Dataset.map`, in this process and in several."""

from __future__ import annotations

import os

import numpy as np
import pytest
from datasets import Dataset, Features, List, Value
from datasets.fingerprint import Hasher

import inlayer
from inlayer.errors import DtypeError, InputError
from inlayer.integrations.datasets import EmbedColumn

TEXTS = ["I love dogs", "", "naïve 🙂"] * 5


@pytest.fixture(autouse=True)
def same_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`Dataset.map` with processes replaces os.environ by a copy, which rich, for one, would not read."""
    monkeypatch.setattr(os, "environ", os.environ)


@pytest.mark.parametrize("processes", [None, 2])
def test_map_adds_the_vectors_of_the_model(processes):
    data = Dataset.from_dict({"title": TEXTS, "id": range(15)})
    features = Features({"title": Value("string"), "id": Value("int64"), "vector": List(Value("float32"))})
    mapped = data.map(
        EmbedColumn("default", column="title", output_column="vector", normalize=True), batched=True,
        num_proc=processes, features=features,
    )  # fmt: skip
    assert mapped.column_names == ["title", "id", "vector"]
    found = np.array(mapped["vector"][:], np.float32)
    np.testing.assert_array_equal(found, inlayer.load("default").encode(TEXTS, normalize=True))


def test_hash_does_not_depend_on_use():
    used = EmbedColumn("default")
    used({"text": ["a"]})
    assert Hasher.hash(used) == Hasher.hash(EmbedColumn("default")) != Hasher.hash(EmbedColumn("minilm"))


def test_missing_column_and_unbatched_map_are_errors():
    with pytest.raises(InputError, match="no column 'text'; it has body"):
        EmbedColumn("default")({"body": ["a"]})
    with pytest.raises(InputError, match="batched=True"):
        EmbedColumn("default")({"text": "a"})
    with pytest.raises(InputError, match="pool is 'none'"):
        EmbedColumn("default", pool="none")


def test_arguments_are_checked_at_once():
    with pytest.raises(TypeError, match="normalise"):
        EmbedColumn("default", normalise=True)  # type: ignore[call-arg]
    with pytest.raises(InputError, match="output_column is 'text', which contains the texts"):
        EmbedColumn("default", output_column="text")


@pytest.mark.parametrize("kind", ["arrow", "pandas", "numpy"])
def test_formats_of_a_dataset(kind):
    data = Dataset.from_dict({"text": TEXTS}).with_format(kind)
    mapped = data.map(EmbedColumn("default"), batched=True).with_format(None)
    np.testing.assert_array_equal(np.array(mapped["embedding"][:], np.float32), inlayer.load("default").encode(TEXTS))


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dtype_that_a_dataset_cannot_store_is_an_error(dtype):
    with pytest.raises(DtypeError, match=f"dtype is {dtype}, which a dataset cannot store; use float32 or float16"):
        EmbedColumn("default", dtype=dtype)
    vectors = Dataset.from_dict({"text": TEXTS}).map(EmbedColumn("default", dtype="float16"), batched=True)
    assert vectors.features["embedding"] == List(Value("float16"))
