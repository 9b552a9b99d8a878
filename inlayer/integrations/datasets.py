"""A function for `datasets.Dataset.map` that adds a column of vectors.

Tested with the real library in tests/integrations/test_datasets.py.
"""

from __future__ import annotations

from typing import Any

from inlayer.checkpoint import load
from inlayer.encoding.encode import check_one_vector
from inlayer.errors import DtypeError, InputError
from inlayer.files import listing, quoted
from inlayer.formats.dtypes import as_float_dtype

__all__ = ["EmbedColumn"]


class EmbedColumn:
    """Adds the vectors of a column; can be pickled and hashed, so `map` caches it and runs it in processes.

    Args:
        source: What `inlayer.load` opens; by default the bundled sample model.
        column: The column of the texts.
        to: The new column.
        settings: Passed to `Model.encode`, such as `normalize=True`.

    Example:
        >>> EmbedColumn("default")({"text": ["I love dogs"]})["embedding"].shape
        (1, 128)
    """

    def __init__(self, source: Any = None, *, column: str = "text", to: str = "embedding", **settings: Any) -> None:
        check_one_vector(settings.get("pool"))
        dtype = as_float_dtype(settings.get("dtype", "float32"))
        if dtype.name not in {"float16", "float32", "float64"}:
            raise DtypeError(f"dtype is {dtype.name}, which a dataset cannot store; use float32 or float16")
        self.source, self.column, self.to, self.settings = source, column, to, settings
        self._model: Any = None

    def __call__(self, batch: Any) -> dict[str, Any]:
        if self.column not in batch:
            raise InputError(f"the dataset has no column {quoted(self.column)}; it has {listing(batch)}")
        texts = batch[self.column]
        if isinstance(texts, str):
            raise InputError("use dataset.map(..., batched=True)")
        self._model = self._model or load(self.source)
        return {self.to: self._model.encode(list(texts), **self.settings)}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_model": None}  # each process opens the model itself
