"""EncodeMixin: the methods of a Model that turn texts into vectors.

[texts] -> ids -> rows -> pooling -> vectors
- implemented in encoding/, which is imported on the first call
Tested in tests/encoding/test_encode.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, overload

import numpy as np

from inlayer.errors import DtypeError
from inlayer.shapes import Array

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.encoding.encode import Encoder, TokenVectors
    from inlayer.encoding.weighting import Weighting

    FittedWeights: TypeAlias = Weighting | str | os.PathLike[str] | None

TextPool: TypeAlias = Literal["mean", "first", "last", "max"]
Pool: TypeAlias = Literal["mean", "first", "last", "max", "none"]


class EncodeMixin:
    """Methods that turn texts into vectors; `Model` inherits them."""

    _last_encoder: tuple[object, Encoder] | None = None

    @overload
    def encode(
        self, texts: str | Iterable[str], *, pool: Literal["none"], weights: FittedWeights = None,
        normalize: bool = False, dim: int | None = None, dtype: Any = "float32", batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> TokenVectors: ...  # fmt: skip

    @overload
    def encode(
        self, texts: str | Iterable[str], *, pool: TextPool = "mean", weights: FittedWeights = None,
        normalize: bool = False, dim: int | None = None, dtype: Any = "float32", batch_size: int | None = None,
        show_progress: bool | None = None,
    ) -> Array: ...  # fmt: skip

    def encode(
        self, texts: str | Iterable[str], *, pool: Pool = "mean",
        weights: FittedWeights = None, normalize: bool = False, dim: int | None = None,
        dtype: Any = "float32", batch_size: int | None = None, show_progress: bool | None = None,
    ) -> Array | TokenVectors:  # fmt: skip
        """Turn texts into vectors: the pooled rows of their tokens.

        Special tokens are ignored, and a text is never truncated. A text without tokens gives zeros. A text's vector
        does not depend on the other texts, the batch size, or the number of threads. It differs from a computation in
        float64 by at most 1e-6 times the largest absolute value of the table (1e-6 if all are below 1).

        Args:
            texts: A text, or a list of texts.
            pool: "mean", "first", "last", or "max"; or "none" for one vector per token.
            weights: A fitted `Weighting`, or the file or folder it was saved to.
            normalize: Scale each vector to norm 1.
            dim: Keep only the first `dim` values.
            dtype: The dtype of the result.
            batch_size: Texts per batch, which limits memory; by default chosen automatically.
            show_progress: Show a progress bar on stderr if it is a terminal.

        Returns:
            A numpy array (n, D), or (D,) for a single text. With `pool="none"`, a `TokenVectors` with `vectors` (N, D),
            `ids` (N,), and `offsets` (n + 1,).

        Raises:
            InputError: If the model has no tokenizer, or an argument is invalid.
            TextError: If a text has a lone surrogate.

        Example:
            >>> load("default").encode(["I love dogs", "I love cats"]).shape
            (2, 128)
        """
        from inlayer.encoding.encode import EncodeSettings

        encoder, settings = self.encoder(weights), EncodeSettings(pool, normalize, dim, dtype)
        if not isinstance(show_progress, (bool, np.bool_, type(None))):
            raise DtypeError(f"show_progress is {show_progress!r}; it must be True, False, or None")
        if not show_progress:
            return encoder.encode(texts, settings, batch_size, None)
        from inlayer.render.progress_bar import progress_bar

        with progress_bar("encoding", "texts") as progress:
            return encoder.encode(texts, settings, batch_size, progress)

    @overload
    def encode_iter(
        self, texts: Iterable[str], *, pool: Literal["none"], weights: FittedWeights = None, normalize: bool = False,
        dim: int | None = None, dtype: Any = "float32", batch_size: int | None = None,
    ) -> Iterator[TokenVectors]: ...  # fmt: skip

    @overload
    def encode_iter(
        self, texts: Iterable[str], *, pool: TextPool = "mean", weights: FittedWeights = None, normalize: bool = False,
        dim: int | None = None, dtype: Any = "float32", batch_size: int | None = None,
    ) -> Iterator[Array]: ...  # fmt: skip

    def encode_iter(
        self, texts: Iterable[str], *, pool: Pool = "mean", weights: FittedWeights = None,
        normalize: bool = False, dim: int | None = None, dtype: Any = "float32", batch_size: int | None = None,
    ) -> Iterator[Array | TokenVectors]:  # fmt: skip
        """Turn any number of texts into vectors, in constant memory.

        Args:
            texts: Texts, for example the lines of a file; read as they are needed.
            pool: Same as in `encode`, as are the arguments below.
            weights: A fitted `Weighting`, or its path.
            normalize: Scale each vector to norm 1.
            dim: Keep this many values.
            dtype: Dtype of the vectors.
            batch_size: Texts per batch.

        Returns:
            An iterator over batches of results, as returned by `encode`. With `pool="none"`, the tokens of a large
            batch come in several parts.

        Raises:
            InlayerError: Same as `encode`.

        Example:
            >>> sum(len(batch) for batch in load("default").encode_iter(str(number) for number in range(1000)))
            1000
        """
        from inlayer.encoding.encode import EncodeSettings

        encoder, settings = self.encoder(weights), EncodeSettings(pool, normalize, dim, dtype)
        return encoder.stream(texts, settings.validated(encoder.width), batch_size)

    def similarity(
        self, a: str | Iterable[str], b: str | Iterable[str], *, pool: TextPool = "mean", weights: FittedWeights = None
    ) -> Array:
        """Compute the cosine similarity of every text in `a` to every text in `b`.

        Args:
            a: A text, or a list of texts.
            b: The texts to compare with.
            pool: "mean", "first", "last", or "max".
            weights: A fitted `Weighting`, or its path.

        Returns:
            Cosines (len(a), len(b)) in float32, 0 for a text without tokens. A single text counts as a list of one.

        Raises:
            InlayerError: Same as `encode`.

        Example:
            >>> load("default").similarity("I love dogs", ["I love cats", "The meeting starts at seven"]).shape
            (1, 2)
        """
        from inlayer.encoding.encode import check_one_vector

        check_one_vector(pool)
        lists = ([texts] if isinstance(texts, str) else texts for texts in (a, b))
        vectors_a, vectors_b = (self.encode(texts, pool=pool, weights=weights, normalize=True) for texts in lists)
        cosines: Array = vectors_a @ vectors_b.T
        return cosines

    def encoder(self, weights: FittedWeights = None) -> Encoder:
        """Build the encoder that `encode` uses: tokenizer, rows, and weights. The most recent one is cached.

        Args:
            weights: A fitted `Weighting`, or its path.

        Returns:
            The encoder for these weights.

        Raises:
            InputError: If the model has no tokenizer, or the weights were fitted to a table of a different size.

        Example:
            >>> load("default").encoder().width
            128
        """
        from inlayer.encoding.weighting import cache_key, open_weighting

        last, key = self._last_encoder, cache_key(weights)  # copied, because another thread may replace it
        if last is None or last[0] != key:
            from inlayer.encoding.encode import Encoder

            self._last_encoder = last = key, Encoder(cast("Model", self), open_weighting(weights))
        return last[1]
