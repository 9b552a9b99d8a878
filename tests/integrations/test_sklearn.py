"""TextEncoder under scikit-learn's own checks, and in a pipeline."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks

import inlayer
from inlayer.integrations.sklearn import TextEncoder

TEXTS = ["I love dogs", "I love cats", "seven days", "nine hours"]


# All checks that do not feed numbers; `check_estimator` leaves out most of them for estimators of texts.
CHECKS = (
    "estimator_cloneable", "estimator_tags_renamed", "valid_tag_types", "estimator_repr", "no_attributes_set_in_init",
    "parameters_default_constructible", "get_params_invariance", "set_params",
    "do_not_raise_errors_in_init_or_set_params", "mixin_order",
)  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_estimator_checks(name):
    getattr(estimator_checks, f"check_{name}")("TextEncoder", TextEncoder("default"))


def test_output_can_be_a_data_frame():
    frame = TextEncoder("default", dim=2).set_output(transform="pandas").fit_transform(TEXTS)
    assert frame.columns.tolist() == ["textencoder0", "textencoder1"]


def test_vectors_are_those_of_the_model():
    encoder = TextEncoder("default", normalize=True, dim=5)
    expected = inlayer.load("default").encode(TEXTS, normalize=True, dim=5)
    for given in (TEXTS, tuple(TEXTS), np.array(TEXTS, object), np.array(TEXTS)[:, None]):
        np.testing.assert_array_equal(encoder.fit_transform(given), expected)
    assert encoder.get_feature_names_out().tolist() == [f"textencoder{index}" for index in range(5)]
    np.testing.assert_array_equal(clone(encoder).transform(TEXTS), expected)


def test_pipeline_learns_and_reacts_to_set_params():
    pipeline = make_pipeline(TextEncoder("default"), LogisticRegression())
    assert pipeline.fit(TEXTS, [0, 0, 1, 1]).predict(["I love fish", "three days"]).tolist() == [0, 1]
    assert pipeline.set_params(textencoder__dim=4).fit(TEXTS, [0, 0, 1, 1])[-1].coef_.shape == (1, 4)


def test_what_is_not_one_text_or_vector_per_row_is_an_error():
    with pytest.raises(TypeError, match="X is a str"):
        TextEncoder("default").fit("I love dogs")
    with pytest.raises(ValueError, match="X has 2 columns"):
        TextEncoder("default").transform(np.array(TEXTS).reshape(2, 2))
    with pytest.raises(ValueError, match="pool is 'none'"):
        TextEncoder("default", pool="none").fit(TEXTS)
