"""A table that stays in its file: only the requested rows are read. Numpy only.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- a table combines two independent things: where the bytes of a row come from (a `RowSource`: a local or remote file),
  and what they mean (a dtype, or `decode_rows` for quantized rows)
- rows are converted to a different dtype when they are read, so opening a table in any dtype does not read any rows
- `weight` is the whole table: mapped from the file if its bytes are the values, otherwise read and decoded once
Tested against the same table in memory in tests/tables/test_stored_table.py, and row sources in test_row_sources.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.checks import check_id_array, check_padding
from inlayer.errors import CheckpointError, DtypeError, ShapeError
from inlayer.files import format_path, quote
from inlayer.formats.dtypes import SAFETENSORS_DTYPES, FloatDtype, as_float_dtype
from inlayer.formats.row_reader import RowSource
from inlayer.formats.tensor_info import TensorInfo
from inlayer.shapes import Array, Bytes, Ids

Decoder = Callable[[Bytes], Array]  # rows of bytes (n, row_bytes) -> rows (n, D) in the stored dtype


class ArrayRows(RowSource):
    """The rows of an array in memory."""

    def __init__(self, array: Array) -> None:
        self._raw = np.ascontiguousarray(array).view(np.uint8).reshape(len(array), -1)
        self.rows, self.row_bytes = self._raw.shape

    def read(self, ids: Ids, out: Bytes) -> None:
        out[:] = self._raw[ids]

    def memory_map(self) -> Bytes:
        return self._raw


class ClusteredRows(RowSource):
    """Rows that several ids share: id i has row `mapping[i]` of another source (vocabulary quantization)."""

    def __init__(self, source: RowSource, mapping: Ids) -> None:
        self.mapping, self.inner = check_id_array(mapping.reshape(-1), source.rows), source
        self.rows, self.row_bytes = len(self.mapping), source.row_bytes

    def read(self, ids: Ids, out: Bytes) -> None:
        self.inner.read(self.mapping[ids], out)


class RepeatedRows(RowSource):
    """Repeats each row of a source `times` times, for a total of `rows` rows: scales shared by a block of rows."""

    def __init__(self, source: RowSource, times: int, rows: int) -> None:
        self.source, self.times, self.rows, self.row_bytes = source, times, rows, source.row_bytes

    def read(self, ids: Ids, out: Bytes) -> None:
        self.source.read(ids // self.times, out)


class JoinedRows(RowSource):
    """The concatenated rows of several sources: 512 shards (qwen4_exp), a tensor per hash head (LongCat)."""

    def __init__(self, parts: Sequence[RowSource]) -> None:
        self.parts, self.row_bytes = tuple(parts), parts[0].row_bytes
        self._ends = np.cumsum([part.rows for part in parts])
        self.rows = int(self._ends[-1])

    def read(self, ids: Ids, out: Bytes) -> None:
        part_indices = np.searchsorted(self._ends, ids, side="right")
        for index in np.unique(part_indices):
            chosen = np.flatnonzero(part_indices == index)
            part, first = self.parts[index], self._ends[index] - self.parts[index].rows
            out[chosen] = part.take(ids[chosen] - first)


class PairedRows(RowSource):
    """Each row of one source, followed by the same row of another: values with their scales."""

    def __init__(self, left: RowSource, right: RowSource) -> None:
        self.left, self.right, self.rows = left, right, left.rows
        self.row_bytes = left.row_bytes + right.row_bytes

    def read(self, ids: Ids, out: Bytes) -> None:
        out[:, : self.left.row_bytes] = self.left.take(ids)
        out[:, self.left.row_bytes :] = self.right.take(ids)


class StoredTable:
    """A table whose rows are read from a file as numpy arrays, as returned by `Model.table`.

    Attributes:
        num_embeddings: Number of rows (V).
        embedding_dim: Width of a row (D).
        dtype: Dtype of the rows that a lookup returns.
        stored_dtype: Dtype of the rows in the file.
        padding_idx: The padding row, or None.
        name: Name of the tensor.

    Example:
        >>> table = inlayer.load("default").table
        >>> table, len(table)
        (StoredTable(6144, 128, dtype=bfloat16, name='model.embed_tokens.weight'), 6144)
    """

    def __init__(
        self,
        source: RowSource,
        width: int,
        stored_dtype: np.dtype[Any],
        *,
        decode_rows: Decoder | None = None,
        padding_idx: int | None = None,
        name: str = "",
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self.source, self.name, self.decode_rows, self.stored_dtype = source, name, decode_rows, stored_dtype
        self.num_embeddings, self.embedding_dim = source.rows, width
        self.padding_idx = check_padding(padding_idx, source.rows)
        self.dtype = stored_dtype if dtype is None else dtype
        self._whole: Array | None = None

    @classmethod
    def from_array(cls, array: Array, padding_idx: int | None = None) -> StoredTable:
        """Make a table whose rows are in memory."""
        return cls(ArrayRows(array), array.shape[1], array.dtype, padding_idx=padding_idx)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (V, D)."""
        return self.num_embeddings, self.embedding_dim

    def astype(self, dtype: FloatDtype) -> StoredTable:
        """Convert looked-up rows to a different dtype. This does not read any rows.

        Args:
            dtype: The dtype, such as "float32".

        Returns:
            The same table with this dtype.

        Raises:
            DtypeError: If it is not a floating-point dtype.

        Example:
            >>> inlayer.load("default").table.astype("float32").rows([40]).dtype
            dtype('float32')
        """
        return StoredTable(
            self.source, self.embedding_dim, self.stored_dtype,
            decode_rows=self.decode_rows, padding_idx=self.padding_idx, name=self.name, dtype=as_float_dtype(dtype),
        )  # fmt: skip

    def rows(self, ids: npt.ArrayLike) -> Array:
        """Read the rows of token ids from the file.

        Args:
            ids: One id, a list of ids, or an array of any shape.

        Returns:
            The rows in the table's dtype, of shape `ids.shape + (D,)`.

        Raises:
            IdRangeError: If an id is not a row of the table.

        Example:
            >>> inlayer.load("default").table.rows([[40, 812]]).shape
            (1, 2, 128)
        """
        index = check_id_array(ids, self.num_embeddings)
        return self._convert(self.read_stored(index.reshape(-1))).reshape(*index.shape, self.embedding_dim)

    def read_stored(self, ids: Ids) -> Array:
        """Return the rows of checked ids (N,) in the stored dtype."""
        # Decode each row once.
        ids, inverse = (ids, None) if self.decode_rows is None else np.unique(ids, return_inverse=True)
        raw = self.source.take(ids)
        return self._to_stored(raw) if inverse is None else self._to_stored(raw)[inverse]

    def blocks(self, rows: int) -> Iterator[tuple[int, Array]]:
        """Yield the whole table in blocks of `rows` rows, each with the id of its first row."""
        for start in range(0, self.num_embeddings, rows):
            yield start, self._convert(self.read_stored(np.arange(start, min(start + rows, self.num_embeddings))))

    @property
    def weight(self) -> Array:
        """The whole table (V, D). Writing into it never changes the file.

        Example:
            >>> inlayer.load("default").table.weight.shape
            (6144, 128)
        """
        if self._whole is None:
            try:
                self._whole = self._convert(self.stored_weight())
            except MemoryError:
                raise self.too_large_error() from None
        self.source.check_unmodified()
        return self._whole

    def stored_weight(self) -> Array:
        """Return all rows in the stored dtype, mapped where the bytes are the values."""
        return self._to_stored(self.source.memory_map())

    def _to_stored(self, raw: Bytes) -> Array:
        if self.decode_rows is not None:
            return self.decode_rows(raw)
        return raw.reshape(-1).view(self.stored_dtype).reshape(-1, self.embedding_dim)

    def too_large_error(self) -> CheckpointError:
        return CheckpointError(
            f"the table {quote(self.name)} of {self.num_embeddings:,} x {self.embedding_dim:,} does not fit into the "
            "memory of this machine"
        )

    def _convert(self, rows: Array) -> Array:
        if self.dtype == rows.dtype:
            return rows
        with np.errstate(all="ignore"):  # a value too large for the dtype becomes infinite, as in torch
            if rows.dtype == np.float64:
                rows = rows.astype(np.float32)  # torch also goes through float32, which rounds twice
            return rows.astype(self.dtype)

    def __len__(self) -> int:
        return self.num_embeddings

    def __repr__(self) -> str:
        return f"StoredTable({self.num_embeddings}, {self.embedding_dim}, dtype={self.dtype}, name={self.name!r})"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_whole": None}  # a pickle refers to the file and does not contain the rows


def check_table(tensor: TensorInfo) -> TensorInfo:
    """Check that a tensor can be a table: floating point, with two axes, neither of them empty."""
    check_matrix(tensor)
    if tensor.dtype not in SAFETENSORS_DTYPES:
        raise wrong_dtype_error(tensor, "floating-point values")
    return tensor


def check_matrix(tensor: TensorInfo) -> None:
    if not tensor.is_matrix:
        which = f"tensor {quote(tensor.name)} of {format_path(tensor.file)}"
        raise ShapeError(f"{which} has shape {quote(tensor.shape)}; a table is (V, D) with both sizes at least 1")


def wrong_dtype_error(tensor: TensorInfo, expected: str) -> DtypeError:
    which = f"tensor {quote(tensor.name)} of {format_path(tensor.file)}"
    return DtypeError(f"{which} has dtype {tensor.dtype}; expected {expected}")


def check_tensor(source: str, tensor: TensorInfo, is_valid: bool, rule: str) -> None:
    """Raise an error that describes a tensor of the checkpoint `source` and ends with the rule that it breaks."""
    if not is_valid:
        which = f"{source}: tensor {quote(tensor.name)} of {format_path(tensor.file)}"
        raise CheckpointError(f"{which} is {tensor.dtype} {quote(tensor.shape)}; {rule}")
