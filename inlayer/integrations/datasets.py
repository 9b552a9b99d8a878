"""A callable for `datasets.Dataset.map` that adds a column of vectors.

Tested with the real library in tests/integrations/test_datasets.py.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from inlayer.checkpoint import load
from inlayer.encoding.encode import check_one_vector
from inlayer.errors import DtypeError, InputError
from inlayer.files import join_names, quote
from inlayer.formats.dtypes import as_float_dtype
from inlayer.integrations.check_source import check_source

if TYPE_CHECKING:
    from inlayer.checkpoint.encode_mixin import FittedWeights, TextPool

__all__ = ["EmbedColumn"]


class EmbedColumn:
    """Adds a column of vectors. It can be pickled and hashed, so `map` can cache it and run it in several processes.

    Args:
        source: Any source that `inlayer.load` accepts. Default: the bundled sample model.
        column: The column that contains the texts.
        output_column: The column to add.
        pool: As in `Model.encode`, as are the arguments below.
        weights: A fitted `Weighting`, or its file.
        normalize: Scale each vector to norm 1.
        dim: Keep only this many values.
        dtype: Dtype of the vectors.
        batch_size: Texts per batch.

    Raises:
        DtypeError: If a dataset cannot store vectors of this dtype.
        InputError: If `source` is None, `pool` does not give one vector per text, or the two columns are the same.
            While mapping, if the dataset has no such column, or `batched=True` is missing.

    Example:
        >>> EmbedColumn("default")({"text": ["I love dogs"]})["embedding"].shape
        (1, 128)
    """

    def __init__(
        self, source: str | os.PathLike[str] = "default", *, column: str = "text", output_column: str = "embedding",
        pool: TextPool = "mean", weights: FittedWeights = None, normalize: bool = False, dim: int | None = None,
        dtype: Any = "float32", batch_size: int | None = None,
    ) -> None:  # fmt: skip
        check_one_vector(pool)
        if (kind := as_float_dtype(dtype).name) not in {"float16", "float32", "float64"}:
            raise DtypeError(f"dtype is {kind}, which a dataset cannot store; use float32 or float16")
        if output_column == column:
            raise InputError(f"output_column is {quote(column)}, which contains the texts; choose another name")
        self.source, self.column, self.output_column = check_source(source), column, output_column
        self.settings = {
            "pool": pool, "weights": weights, "normalize": normalize, "dim": dim, "dtype": dtype,
            "batch_size": batch_size,
        }  # fmt: skip
        self._model: Any = None

    def __call__(self, batch: Any) -> dict[str, Any]:
        names = getattr(batch, "column_names", batch)  # the batch is a table if the dataset's format is "arrow"
        if self.column not in names:
            raise InputError(
                f"the dataset has no column {quote(self.column)}; it has {join_names(names, in_order=True)}"
            )
        texts = batch[self.column]
        if isinstance(texts, str):
            raise InputError("use dataset.map(..., batched=True)")
        self._model = self._model or load(self.source)
        texts = texts if hasattr(texts, "to_pylist") else list(texts)
        return {self.output_column: self._model.encode(texts, **self.settings)}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None}  # each process opens the model itself
