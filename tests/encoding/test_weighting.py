"""Weighting, compared with plain loops; files and errors."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import save_file

import inlayer
from inlayer import Weighting
from inlayer.errors import CheckpointError, InputError, MissingFileError

TEXTS = [
    "I love dogs", "I love cats", "the meeting starts at seven", "the meeting was long", "fish and dogs", "", "seven",
    "a dog is an animal", "nine hours and seven days", "they sell fish at the market",
]  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return inlayer.load("default")


def weighted_means(model, sif):
    """Weighted mean of each text that has tokens, one token at a time in float64."""
    ids = [model.tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    counts = Counter(one for row in ids for one in row)
    total = sum(counts.values())
    weight = {one: sif / (sif + count / total) for one, count in counts.items()}
    rows = {one: model.table.rows(one).astype(np.float64) for one in counts}
    return np.array([sum(weight[one] * rows[one] for one in row) / len(row) for row in ids if row]), weight


def test_sif_and_common_component_equal_plain_loops(model):
    means, weight = weighted_means(model, 0.01)
    _, _, directions = np.linalg.svd(means, full_matrices=False)
    expected = means - np.outer(means @ directions[0], directions[0])
    weighting = Weighting.fit(model, TEXTS, sif=0.01, remove_components=1)
    for token_id, one in weight.items():
        assert weighting.token_weights[token_id] == pytest.approx(one, rel=1e-6)
    assert weighting.token_weights.max() == 1.0  # tokens that do not occur
    ours = model.encode(TEXTS, weights=weighting)
    np.testing.assert_allclose(ours[[bool(text) for text in TEXTS]], expected, atol=1e-5)
    assert not ours[TEXTS.index("")].any()
    assert np.abs(model.encode(TEXTS)[0] - ours[0]).max() > 0.01  # control: it changes something


def test_whitened_vectors_have_unit_covariance(model):
    weighting = Weighting.fit(model, TEXTS, sif=0, remove_components=0, whiten=True, dim=4)
    ours = model.encode([text for text in TEXTS if text], weights=weighting)
    assert ours.shape == (9, 4)
    np.testing.assert_allclose(ours.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(ours.T @ ours / 9, np.eye(4), atol=1e-4)


@pytest.mark.parametrize("options", [{}, {"whiten": True}, {"sif": 0, "remove_components": 3}])
def test_batch_size_does_not_matter(model, options):
    weighting = Weighting.fit(model, TEXTS, **options)
    whole = model.encode(TEXTS, weights=weighting)
    for batch_size in (1, 3):
        np.testing.assert_allclose(model.encode(TEXTS, weights=weighting, batch_size=batch_size), whole, atol=1e-6)


def test_saved_weighting_gives_the_same_vectors(model, tmp_path):
    weighting = Weighting.fit(model, TEXTS, whiten=True, dim=5)
    file = weighting.save(tmp_path)
    assert file == tmp_path / "weighting.safetensors"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]  # nothing temporary is left
    expected = model.encode(TEXTS, weights=weighting)
    for path in (tmp_path, file, str(file)):
        np.testing.assert_array_equal(model.encode(TEXTS, weights=path), expected)
    Weighting.fit(model, TEXTS, whiten=True, dim=3).save(file)  # the same path, another weighting
    assert model.encode(TEXTS, weights=str(file)).shape == (10, 3)
    weighting.save(file)
    settings = {"sif": 1e-3, "remove_components": 1, "whiten": True, "dim": 5, "texts": 10}
    numpy_sizes = Weighting.fit(model, TEXTS, whiten=True, dim=np.int64(5), remove_components=np.uint8(1))
    assert Weighting.load(numpy_sizes.save(tmp_path / "sizes.safetensors")).settings == settings
    assert Weighting.load(file).settings == settings == json.loads(json.dumps(settings))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sif": -1.0}, r"sif is -1\.0"),
        ({"sif": float("nan")}, "sif is nan"),
        ({"sif": True}, "sif is True"),
        ({"remove_components": True}, "remove_components is True"),
        ({"remove_components": 128}, r"remove_components is 128; it must be an integer in 0\.\.127"),
        ({"dim": 3}, "dim is 3; it requires whiten=True"),
        ({"whiten": True, "dim": 500}, "dim is 500"),
    ],
)
def test_invalid_settings(model, options, message):
    with pytest.raises(InputError, match=message):
        Weighting.fit(model, TEXTS, **options)


def test_arguments_of_another_type(model):
    with pytest.raises(TypeError, match=r"model is a str; it must be an opened model, such as inlayer\.load"):
        Weighting.fit("default", TEXTS)
    with pytest.raises(TypeError, match="whiten is 'no'; it must be True or False"):
        Weighting.fit(model, TEXTS, whiten="no")


def test_texts_that_cannot_be_fitted(model):
    with pytest.raises(InputError, match=r"none of the given texts \(2\) has tokens"):
        Weighting.fit(model, ["", ""])
    with pytest.raises(InputError, match="the texts all have the same vector"):
        Weighting.fit(model, ["a", "a"], remove_components=0, whiten=True)


def test_damaged_and_foreign_files(model, tmp_path):
    with pytest.raises(MissingFileError, match="not found"):
        Weighting.load(tmp_path / "nowhere.safetensors")
    other = tmp_path / "other.safetensors"
    save_file({"a": np.zeros(3, np.float32)}, other)
    with pytest.raises(CheckpointError, match="is not a weighting"):
        Weighting.load(other)
    file = Weighting.fit(model, TEXTS).save(tmp_path / "w.safetensors")
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(CheckpointError, match="not a readable safetensors file"):
        Weighting.load(file)
    small = Weighting(np.ones(3, np.float32), np.zeros(2, np.float32), np.eye(2, dtype=np.float32))
    with pytest.raises(InputError, match=r"fitted on a table of 3 x 2; default has 6,144 x 128"):
        model.encode("a", weights=small)
