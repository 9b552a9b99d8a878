"""A function for `datasets.Dataset.map` that adds a column of vectors.

Tested with the real library in tests/integrations/test_datasets.py.
"""

from __future__ import annotations

from typing import Any

from inlayer.checkpoint import load
from inlayer.encoding.encode import check_one_vector
from inlayer.errors import DtypeError, InputError
from inlayer.files import join_names, quote
from inlayer.formats.dtypes import as_float_dtype

__all__ = ["EmbedColumn"]


class EmbedColumn:
    """Adds a column of vectors. It can be pickled and hashed, so `map` can cache it and run it in several processes.

    Args:
        source: What `inlayer.load` opens; by default the bundled sample model.
        column: The column of the texts.
        to: The new column.
        pool: As in `Model.encode`, as are the arguments below.
        weights: A fitted `Weighting`, or its file.
        normalize: Scale each vector to norm 1.
        dim: Keep this many values.
        dtype: Dtype of the vectors.
        batch_size: Texts per batch.

    Raises:
        DtypeError: If a dataset cannot store vectors of this dtype.
        InputError: If `pool` is not one vector per text, or the two columns are the same; while mapping, if the dataset
            has no such column, or `batched=True` is missing.

    Example:
        >>> EmbedColumn("default")({"text": ["I love dogs"]})["embedding"].shape
        (1, 128)
    """

    def __init__(
        self, source: Any = "default", *, column: str = "text", to: str = "embedding", pool: str = "mean",
        weights: Any = None, normalize: bool = False, dim: int | None = None, dtype: Any = "float32",
        batch_size: int | None = None,
    ) -> None:  # fmt: skip
        check_one_vector(pool)
        if (kind := as_float_dtype(dtype).name) not in {"float16", "float32", "float64"}:
            raise DtypeError(f"dtype is {kind}, which a dataset cannot store; use float32 or float16")
        if to == column:
            raise InputError(f"to is {quote(to)}, the column of the texts, which it would replace; choose another name")
        self.source, self.column, self.to = source, column, to
        self.settings = {
            "pool": pool, "weights": weights, "normalize": normalize, "dim": dim, "dtype": dtype,
            "batch_size": batch_size,
        }  # fmt: skip
        self._model: Any = None

    def __call__(self, batch: Any) -> dict[str, Any]:
        names = getattr(batch, "column_names", batch)  # a table, if the dataset has the format "arrow"
        if self.column not in names:
            raise InputError(
                f"the dataset has no column {quote(self.column)}; it has {join_names(names, in_order=True)}"
            )
        texts = batch[self.column]
        if isinstance(texts, str):
            raise InputError("use dataset.map(..., batched=True)")
        self._model = self._model or load(self.source)
        texts = texts if hasattr(texts, "to_pylist") else list(texts)
        return {self.to: self._model.encode(texts, **self.settings)}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None}  # each process opens the model itself
