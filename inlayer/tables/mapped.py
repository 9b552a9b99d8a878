"""A table in a safetensors file: read-only rows, read when they are looked up.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- opening reads the header alone: a table may exceed memory
- `weight`, the whole of it, is mapped privately: a write changes this process's copy and never the file
- not here: which file of a checkpoint holds the table (checkpoint/); trust in pickles
Checked against the same table in memory in tests/tables/test_mapped.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inlayer.errors import DtypeError, InputError, MissingFileError, ShapeError
from inlayer.formats.row_file import FileRows
from inlayer.formats.safetensors import DTYPES, TensorInfo, read_header
from inlayer.paths import check_path, printable, quoted, shown, what_is_at
from inlayer.tables.stored import StoredTable

__all__ = ["MappedTable", "check_table", "listing"]


class MappedTable(StoredTable):
    """The table `name` of a safetensors file; without a name, the only 2-D tensor in it."""

    def __init__(self, path: str | Path, name: str | None = None, *, padding_idx: int | None = None) -> None:
        self.path = check_path(path)
        if what_is_at(self.path) != "file":
            raise MissingFileError(f"no file {shown(self.path)}; a MappedTable is opened from one .safetensors file")
        stored = check_table(choose(self.path, name, read_header(self.path)))
        rows, width = stored.shape
        source = FileRows(self.path, stored.offset, rows, stored.nbytes // rows)
        super().__init__(source, width, DTYPES[stored.dtype], padding_idx=padding_idx, name=stored.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return MappedTable._again, (str(self.path), self.name, self.__getstate__())

    @classmethod
    def _again(cls, path: str, name: str, state: dict[str, Any]) -> MappedTable:
        table = cls(path, name)
        table.__dict__.update(state)
        return table


def check_table(stored: TensorInfo) -> TensorInfo:
    """A tensor that can be a table: two axes, neither empty, floating point."""
    which = f"tensor {quoted(stored.name)} of {shown(stored.file)}"
    if len(stored.shape) != 2 or 0 in stored.shape:
        raise ShapeError(f"{which} has shape {quoted(stored.shape)}; a table is (V, D), neither of them 0")
    if stored.dtype not in DTYPES:
        raise DtypeError(f"{which} has dtype {stored.dtype}; a table holds floating point rows")
    return stored


def choose(path: Path, name: str | None, tensors: Mapping[str, TensorInfo]) -> TensorInfo:
    """The tensor that is meant, among those of the file."""
    tables = [key for key, stored in tensors.items() if len(stored.shape) == 2]
    if name is None:
        if len(tables) == 1:
            return tensors[tables[0]]
        found = f"{len(tables)} two-dimensional tensors" if tables else "no two-dimensional tensor"
        raise InputError(f"{path.name} holds {found}; say which is the table: {listing(tables or tensors)}")
    if name not in tensors:
        raise InputError(f"{path.name} has no tensor {quoted(name)}; it has {listing(tensors)}")
    return tensors[name]


def listing(names: Iterable[str], most: int = 8) -> str:
    """Names for a message, the first few of them."""
    names = sorted(names)
    shown_names = ", ".join(printable(name[:80]) for name in names[:most])
    return f"{shown_names} and {len(names) - most} more" if len(names) > most else shown_names or "nothing"
