"""A stored table as a torch module: `Embeddings.token_embedding` of an opened checkpoint.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- no parameters and no state; `in_memory()` makes a `Table` that can be trained and saved
- `.to(dtype)` and `.to(device)` do not read anything: torch converts rows when they are looked up
- rows are read straight into reused output memory (tables/buffers.py)
- a tracer (torch.compile) has no ids to read rows for, so it gathers from `weight`. Access `weight` before compiling
Tested against the same table in memory in tests/tables/test_stored_table.py and tests/tables/test_mapped.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from inlayer.checks import check_type
from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_path, format_path, join_names, path_kind, quote
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.formats.row_reader import LocalFile
from inlayer.formats.safetensors import read_header
from inlayer.formats.tensor_info import TensorInfo
from inlayer.tables.stored_table import StoredTable, check_table
from inlayer.tables.table import Table, check_id_range, lease_buffer, look_up
from inlayer.tensors import check_ids, is_meta_or_traced, to_tensor, torch_dtype


class StoredEmbedding(nn.Module):
    """Looks up rows of a `StoredTable`; called like nn.Embedding."""

    def __init__(self, table: StoredTable) -> None:
        super().__init__()
        self.table, self.padding_idx = table, table.padding_idx
        self.num_embeddings, self.embedding_dim = table.shape
        self.dtype, self.device = torch_dtype(table.dtype), torch.device("cpu")
        self._stored_dtype = torch_dtype(table.stored_dtype)
        self._whole: Tensor | None = None

    def forward(self, ids: Any) -> Shaped[Tensor, "... D"]:
        """Look up rows.

        Args:
            ids: Token ids of any shape.

        Returns:
            Rows of shape `ids.shape + (D,)`.

        Raises:
            DtypeError: If the ids are not integers.
            IdRangeError: If an id is not a row.

        Example:
            >>> inlayer.load("default").embeddings.token_embedding(torch.tensor([[40, 812]])).shape
            torch.Size([1, 2, 128])
        """
        index = check_ids(ids)
        if is_meta_or_traced(index):
            return look_up(index, self.weight, self.padding_idx)
        check_id_range(index, self.num_embeddings)
        flat = index.reshape(-1).cpu().numpy().astype(np.int64, copy=False)
        if self.table.decode_rows is None:
            rows = lease_buffer((len(flat), self.table.embedding_dim), self._stored_dtype)
            self.table.source.read(flat, rows.view(torch.uint8).numpy())
        else:
            rows = to_tensor(self.table.read_stored(flat))
        return rows.to(self.dtype).view(*index.shape, self.embedding_dim).to(self.device)

    if TYPE_CHECKING:
        __call__ = forward

    @property
    def weight(self) -> Shaped[Tensor, "V D"]:
        """The whole table (V, D). It is never trained, and writing into it does not change the file.

        Example:
            >>> inlayer.load("default").embeddings.token_embedding.weight.shape
            torch.Size([6144, 128])
        """
        if self._whole is None:
            try:
                self._whole = to_tensor(self.table.stored_weight()).to(self.device, self.dtype)
            except MemoryError:
                raise self.table.too_large_error() from None
        if not torch.compiler.is_compiling():
            self.table.source.check_unmodified()
        return self._whole

    def in_memory(self) -> Table:
        """Copy all rows into a `Table`, which can be trained, resized, and saved.

        Returns:
            The table.

        Raises:
            InputError: If the rows do not fit into memory.

        Example:
            >>> inlayer.load("default").embeddings.token_embedding.in_memory()
            Table(6144, 128, padding_idx=6142)
        """
        return Table.from_weight(self.weight.clone(), self.padding_idx)

    def extra_repr(self) -> str:
        """Return rows, width, dtype, and name, for print(model)."""
        return f"{self.num_embeddings}, {self.embedding_dim}, dtype={self.dtype}, name={self.table.name!r}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StoredEmbedding:
        """Record the dtype and device of `.to()`, `.half()`, and `.cuda()`: no values are converted yet."""
        target = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        if (target.dtype, target.device) != (self.dtype, self.device):
            self.dtype, self.device, self._whole = target.dtype, target.device, None
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredEmbedding:
        memo |= {id(shared): shared for shared in (self._whole, self.table)}  # read-only: no second copy is needed
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__ = copy.deepcopy(self.__dict__, memo)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_whole": None}  # a pickle refers to the file and does not contain the rows


class MappedEmbedding(StoredEmbedding):
    """The rows of one tensor in a safetensors file, read when they are looked up.

    Opening reads only the header, so a table may be larger than memory. `weight`, the whole table, is mapped
    privately: writing into it changes this process's copy and never the file.

    Args:
        path: A .safetensors file.
        name: The tensor; optional if the file has only one tensor with two axes.
        padding_idx: The padding row, if there is one.

    Raises:
        MissingFileError: If there is no such file.
        InputError: If the file is not valid, or `name` is missing or ambiguous.

    Example:
        >>> MappedEmbedding("model/model.safetensors", "model.embed_tokens.weight")(torch.tensor([40, 812])).shape
        torch.Size([2, 128])
    """

    def __init__(self, path: str | Path, name: str | None = None, *, padding_idx: int | None = None) -> None:
        file = check_path(path)
        if name is not None:
            check_type(name, str, "name")
        if path_kind(file) != "file":
            raise MissingFileError(
                f"{format_path(file)}: not found, or not a file; MappedEmbedding opens a .safetensors file"
            )
        tensor = check_table(choose_tensor(file, name, read_header(file)))
        source, dtype = LocalFile(file).rows_of(tensor), SAFETENSORS_DTYPES[tensor.dtype]
        super().__init__(StoredTable(source, tensor.shape[1], dtype, padding_idx=padding_idx, name=tensor.name))
        self.path = file

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedEmbedding._reopen, (str(self.path), self.table.name, self.padding_idx, self.device, self.dtype)

    @classmethod
    def _reopen(cls, path: str, name: str, padding_idx: int | None, *target: Any) -> MappedEmbedding:
        """Open a pickled table again, including its header, because the file may have changed."""
        return cls(path, name, padding_idx=padding_idx).to(*target)


def choose_tensor(path: Path, name: str | None, tensors: Mapping[str, TensorInfo]) -> TensorInfo:
    """Return the tensor called `name`, or the only one with two axes."""
    tables = [key for key, tensor in tensors.items() if len(tensor.shape) == 2]
    if name is None:
        if len(tables) == 1:
            return tensors[tables[0]]
        problem = f"{len(tables)} tensors with two axes" if tables else "no tensor with two axes"
        raise InputError(f"{path.name} has {problem}; pass the name of the table: {join_names(tables or tensors)}")
    if name not in tensors:
        raise InputError(f"{path.name} has no tensor {quote(name)}; it has {join_names(tensors)}")
    return tensors[name]
