"""A model as a scikit-learn transformer: texts to vectors inside a pipeline.

Tested with scikit-learn's own estimator checks in tests/integrations/test_sklearn.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from inlayer.checkpoint import load
from inlayer.encoding.encode import check_one_vector
from inlayer.errors import DtypeError, InputError, needs_package, type_name
from inlayer.integrations.check_source import check_source
from inlayer.shapes import Array

with needs_package("inlayer.integrations.sklearn", "scikit-learn", "scikit-learn", "sklearn"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

if TYPE_CHECKING:
    from inlayer.checkpoint.encode_mixin import FittedWeights, TextPool

__all__ = ["TextEncoder"]


class TextEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer that turns texts into vectors.

    Args:
        source: Any source that `inlayer.load` accepts. Default: the bundled sample model.
        pool: "mean", "first", "last", or "max".
        weights: A fitted `Weighting`, or its file.
        normalize: Scale each vector to norm 1.
        dim: Keep only this many values.

    Raises:
        InlayerError: If the model cannot be opened or has no tokenizer, or an argument is invalid. Raised by `fit` and
            `transform`, because scikit-learn's constructors only store their arguments.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> pipeline = make_pipeline(TextEncoder("default"), LogisticRegression())
        >>> pipeline.fit(["good dog", "bad cat"], [1, 0]).predict(["good dog"]).tolist()
        [1]
    """

    def __init__(
        self, source: str | os.PathLike[str] = "default", *, pool: TextPool = "mean", weights: FittedWeights = None,
        normalize: bool = False, dim: int | None = None,
    ) -> None:  # fmt: skip
        self.source, self.pool, self.weights, self.normalize, self.dim = source, pool, weights, normalize, dim

    def fit(self, X: Any, y: Any = None) -> TextEncoder:
        """Open the model. Nothing is learned from the texts.

        Args:
            X: A list, array, or column of texts.
            y: Ignored.

        Returns:
            This encoder.

        Raises:
            DtypeError: If X is not a list, array, or column of texts.
            InlayerError: If the model cannot be opened, or an argument is invalid.

        Example:
            >>> TextEncoder("default").fit(["I love dogs"])
            TextEncoder()
        """
        del y
        self._n_features_out = len(self._encode(_texts(X)[:1])[0])
        return self

    def transform(self, X: Any) -> Array:
        """Turn texts into vectors.

        Args:
            X: A list, array, or column of texts.

        Returns:
            Vectors (n, D), as from `Model.encode`.

        Raises:
            DtypeError: If X is not a list, array, or column of texts.
            InlayerError: If the model cannot be opened, or an argument is invalid.

        Example:
            >>> TextEncoder("default", dim=64).transform(["I love dogs"]).shape
            (1, 64)
        """
        return self._encode(_texts(X))

    def _encode(self, texts: list[str]) -> Array:
        check_one_vector(self.pool)
        model = self.__dict__.get("_model")
        if model is None or model[0] != self.source:
            self._model = model = (self.source, load(check_source(self.source)))
        return model[1].encode(texts, pool=self.pool, weights=self.weights, normalize=self.normalize, dim=self.dim)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string, tags.requires_fit = False, True, False
        return tags


def _texts(X: Any) -> list[str]:
    if isinstance(X, str) or not hasattr(X, "__len__"):
        raise DtypeError(f"X is {type_name(X)}; it must be a list, array, or column of texts")
    if (shape := np.shape(X)[1:]) not in {(), (1,)} and not isinstance(X, list):
        raise InputError(f"X has {shape[0]:,} columns; select the column with the texts")
    texts = np.asarray(X, dtype=object).reshape(-1).tolist() if not isinstance(X, list) else X
    if not texts:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    return texts
