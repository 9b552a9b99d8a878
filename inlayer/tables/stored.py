"""A table that stays where it is stored: only the rows asked for are read.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- two independent things make one: where the bytes of a row come from (a `RowSource`: a local file, a remote one), and
  what they mean (a dtype, or `decode` for a quantized row)
- `.to(dtype)` and `.to(device)` read nothing: rows are converted when looked up, to the same bits
- `weight` is the whole table: mapped from the file where the bytes are the values, else read and decoded once
- a tracer (torch.compile), which has no ids to read rows for, gathers from that: ask for it before compiling
- it holds no parameters and no state; `in_memory()` makes a `Table` of it, which can be trained and saved
- not here: opening files (tables/mapped.py, checkpoint/)
Checked against the same table in memory in tests/tables/test_stored.py.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Shaped
from torch import Tensor, nn

from inlayer.errors import CheckpointError
from inlayer.paths import quoted
from inlayer.shapes import check_ids, check_padding
from inlayer.tables.lookup import check_id_range, has_no_values, lease, look_up
from inlayer.tables.memory import Table

__all__ = ["RowSource", "StoredTable"]

Bytes = npt.NDArray[np.uint8]
Decoder = Callable[[Bytes], Tensor]  # rows of bytes (n, row_bytes) -> rows (n, D) in the table's dtype


@runtime_checkable
class RowSource(Protocol):
    """Where the bytes of rows come from."""

    rows: int
    row_bytes: int

    def read(self, ids: npt.NDArray[np.int64], out: Bytes) -> None:
        """Fill `out` (n, row_bytes) with the rows of `ids`, all within 0..rows - 1."""

    def map(self) -> Bytes:
        """All rows (rows, row_bytes), mapped where that can be done."""

    def check(self) -> None:
        """An error where what is mapped is no longer there."""


class StoredTable(nn.Module):
    """V rows of width D somewhere in a file. `dtype` is what a row has when it is looked up."""

    def __init__(
        self,
        source: RowSource,
        width: int,
        dtype: torch.dtype,
        *,
        decode: Decoder | None = None,
        padding_idx: int | None = None,
        name: str = "",
    ) -> None:
        super().__init__()
        self.source, self.name = source, name
        self.num_embeddings, self.embedding_dim = source.rows, width
        self.dtype, self.device = dtype, torch.device("cpu")
        self.padding_idx = check_padding(padding_idx, source.rows)
        self._stored_dtype, self._decode = dtype, decode
        self._whole: Tensor | None = None

    def forward(self, ids: Any) -> Shaped[Tensor, "... D"]:
        """Rows for ids of any shape, checked: `ids.shape + (D,)`."""
        index = check_ids(ids)
        if has_no_values(index):
            return look_up(index, self.weight, self.padding_idx)
        check_id_range(index, self.num_embeddings)
        rows = self.read(index.reshape(-1).cpu().numpy().astype(np.int64, copy=False))
        return rows.view(*index.shape, self.embedding_dim).to(self.device)

    def read(self, ids: npt.NDArray[np.int64]) -> Shaped[Tensor, "N D"]:
        """The rows of checked ids (N,), on the CPU, in the table's dtype."""
        if self._decode is None:
            rows = lease((len(ids), self.embedding_dim), self._stored_dtype)
            self.source.read(ids, rows.view(torch.uint8).numpy())
        else:  # decode each row once
            wanted, places = np.unique(ids, return_inverse=True)
            raw = np.empty((len(wanted), self.source.row_bytes), np.uint8)
            self.source.read(wanted, raw)
            rows = self._decode(raw)[torch.from_numpy(places.reshape(-1))]
        return rows.to(self.dtype)

    def blocks(self, rows: int) -> Iterator[tuple[int, Shaped[Tensor, "N D"]]]:
        """The whole table, `rows` rows at a time, each block with the id of its first row."""
        for start in range(0, self.num_embeddings, rows):
            stop = min(start + rows, self.num_embeddings)
            yield start, self.read(np.arange(start, stop))

    @property
    def weight(self) -> Shaped[Tensor, "V D"]:
        """The whole table (V, D). It is never trained, and writing into it changes no file."""
        if self._whole is None:
            try:
                self._whole = self._read_whole()
            except MemoryError:
                raise CheckpointError(
                    f"the table {quoted(self.name)} of {self.num_embeddings:,} x {self.embedding_dim:,} is too large "
                    "for the memory of this machine"
                ) from None
        if not torch.compiler.is_compiling():
            self.source.check()
        return self._whole

    def _read_whole(self) -> Tensor:
        raw = self.source.map()
        if self._decode is not None:
            return self._decode(raw).to(self.device, self.dtype)
        whole = torch.from_numpy(raw.reshape(-1)).view(self._stored_dtype).view(-1, self.embedding_dim)
        return whole.to(self.device, self.dtype)

    def in_memory(self) -> Table:
        """A `Table` with these rows, all of them read: it can be trained, resized and saved."""
        return Table.from_weight(self.weight.clone(), self.padding_idx)

    def extra_repr(self) -> str:
        """Rows, width and origin, for print(model)."""
        return f"{self.num_embeddings}, {self.embedding_dim}, dtype={self.dtype}, name={self.name!r}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StoredTable:
        """What `.to()`, `.half()` and `.cuda()` call: nothing is held here to convert, so the wish is remembered."""
        wanted = fn(torch.empty(0, dtype=self.dtype, device=self.device))
        if (wanted.dtype, wanted.device) != (self.dtype, self.device):
            self.dtype, self.device, self._whole = wanted.dtype, wanted.device, None
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def __deepcopy__(self, memo: dict[int, Any]) -> StoredTable:
        memo[id(self._whole)] = self._whole  # rows nobody trains need no second copy in memory
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_whole": None}  # a pickle names the file, it does not carry the rows
