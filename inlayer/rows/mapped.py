"""A table that stays in its file: read-only rows, memory-mapped from a safetensors file.

text -> ids -> [rows] -> (+ positions) -> hidden states -> head
- opening reads the header alone; a row is read from disk when first looked up: a table may exceed memory
- the mapping is private: a write into `weight` changes this process's copy of that page and never the file
- `.to(dtype)` or `.to(device)` loads the whole table into memory, as any conversion must
- `deepcopy` shares the mapping; the weight is a buffer outside the state dict, it never requires a gradient
- nobody may cut the file short while it is open: the system kills a process that reads past its end
- not here: which file of a checkpoint holds the table (checkpoint/); trust in pickles
Checked against the same table in memory in tests/rows/test_mapped.py.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from inlayer.errors import DtypeError, InlayerError, InputError, MissingFileError, ShapeError
from inlayer.rows.lookup import look_up
from inlayer.rows.table import check_padding

__all__ = ["MappedTable"]


class MappedTable(nn.Module):
    """The table `name` of a safetensors file; without a name, the only 2-D tensor in it."""

    weight: Tensor

    def __init__(self, path: str | Path, name: str | None = None, *, padding_idx: int | None = None) -> None:
        super().__init__()
        self.path = Path(path)
        self.name, weight_VD = open_table(self.path, name)
        self.register_buffer("weight", weight_VD, persistent=False)
        self.padding_idx = check_padding(padding_idx, weight_VD.shape[0])

    @property
    def num_embeddings(self) -> int:
        """V, the number of rows."""
        return self.weight.shape[0]

    @property
    def embedding_dim(self) -> int:
        """D, the width of a row."""
        return self.weight.shape[1]

    def forward(self, ids: Any) -> Shaped[Tensor, "... D"]:
        """Rows for ids of any shape, checked: `ids.shape + (D,)`."""
        return look_up(ids, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Rows, width and origin, for print(model)."""
        return f"{self.num_embeddings}, {self.embedding_dim}, dtype={self.weight.dtype}, file={self.path.name!r}"

    def __deepcopy__(self, memo: dict[int, Any]) -> MappedTable:
        memo[id(self.weight)] = self.weight  # rows nobody trains need no second copy in memory
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__ = copy.deepcopy(self.__dict__, memo)
        return twin


def open_table(path: Path, name: str | None) -> tuple[str, Shaped[Tensor, "V D"]]:
    """Name and mapped tensor of a table in a safetensors file, or an error saying what is there instead."""
    try:
        if not path.is_file():
            raise MissingFileError(f"no file {path}; a MappedTable is opened from one .safetensors file")
        # Compares the header with the file's length: one cut short or lying about its sizes ends here.
        with safe_open(path, "pt") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
            name = choose(path, name, shapes)
            weight, shape = file.get_tensor(name), shapes[name]
    except (SafetensorError, OSError, ValueError) as error:
        if isinstance(error, InlayerError):
            raise
        raise InputError(f"{path} is not a readable safetensors file: {error}; was the download cut short?") from error
    if not weight.is_floating_point() or tuple(weight.shape) != shape:  # 4-bit floats come packed, two a byte
        raise DtypeError(f"tensor {name!r} of {path.name} has dtype {weight.dtype}; a table holds floating point rows")
    return name, weight


def choose(path: Path, name: str | None, shapes: dict[str, tuple[int, ...]]) -> str:
    """The tensor that is meant, among those of the file."""
    tables = [key for key, shape in shapes.items() if len(shape) == 2]
    if name is None:
        if len(tables) == 1:
            return choose(path, tables[0], shapes)
        found = f"{len(tables)} two-dimensional tensors" if tables else "no two-dimensional tensor"
        raise InputError(f"{path.name} holds {found}; say which is the table: {listing(tables or list(shapes))}")
    if name not in shapes:
        raise InputError(f"{path.name} has no tensor {name!r}; it has {listing(list(shapes))}")
    if len(shapes[name]) != 2 or 0 in shapes[name]:
        raise ShapeError(
            f"tensor {name!r} of {path.name} has shape {shapes[name]}; a table is (V, D), neither of them 0"
        )
    return name


def listing(names: list[str], most: int = 8) -> str:
    """Names for a message, the first few of them."""
    shown = ", ".join(sorted(names)[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown or "nothing"
