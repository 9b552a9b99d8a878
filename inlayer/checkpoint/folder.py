"""A folder of safetensors, or one such file: the usual form of a checkpoint.

[checkpoint] -> Embeddings, Head, tokenizer
- opening reads config.json and the index; the header of a shard is read when a tensor of it is asked for. Without an
  index, `model.safetensors`, else every safetensors file of the folder is believed
- a shard that is missing matters only when a tensor in it is asked for: who needs the table may fetch its shard alone
- every file must lie in the folder: a symbolic link out of it is refused, except into the blobs of the hub's own cache,
  which is made of such links
- a single file is opened with what lies beside it, config.json and tokenizer, if it is there
- not here: other formats (checkpoint/gguf.py, checkpoint/pytorch.py)
Checked in tests/checkpoint/test_folder.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from inlayer.checkpoint.shards import INDEX, LARGEST_INDEX, gather, parse_index
from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, DtypeError, MissingFileError
from inlayer.families.fields import read_config
from inlayer.formats.row_file import FileRows, read_span
from inlayer.formats.safetensors import DTYPES, TensorInfo, read_header
from inlayer.paths import quoted, shown, what_is_at, wrong_kind
from inlayer.tables import StoredTable
from inlayer.tables.mapped import check_table
from inlayer.tables.stored import RowSource
from inlayer.tokenizers import Tokenizer, open_tokenizer

__all__ = ["FolderStore", "beside", "inside", "tokenizer_beside"]


class FolderStore(Store):
    """The safetensors of a folder, or the one file `path`."""

    index = INDEX  # the name of the file that says what is in which shard

    def __init__(self, path: Path) -> None:
        single = what_is_at(path) == "file"
        self.kind, self.where = "safetensors" if single else "folder", shown(path)
        self.folder = path.parent if single else path
        self._headers: dict[str, dict[str, TensorInfo]] = {}
        self.config = beside(self.folder)
        self._files = {path.name} if single else self._weight_files()
        absent = single or what_is_at(path / self.index) == "nothing"
        self._index: Mapping[str, str] | None = None if absent else self._read_index()

    def names(self) -> Collection[str]:
        return self._index if self._index is not None else self._found

    def find(self, name: str) -> TensorInfo:
        if self._index is None:
            if name not in self._found:
                raise CheckpointError(f"{self.where} holds no tensor {quoted(name)}")
            return self._found[name]
        file = self._index.get(name)
        if file is None:
            raise CheckpointError(f"{self.where} holds no tensor {quoted(name)}")
        stored = self._header(file).get(name)
        if stored is None:
            raise CheckpointError(
                f"{self.where}: the index puts tensor {quoted(name)} into {shown(file)}, which does not hold it"
            )
        return stored

    def read(self, name: str) -> Tensor:
        stored = self.find(name)
        if stored.dtype not in DTYPES:
            raise DtypeError(
                f"tensor {quoted(name)} of {shown(stored.file)} has dtype {stored.dtype}; its values are no floats"
            )
        return torch.from_numpy(self._read_bytes(stored)).view(DTYPES[stored.dtype]).view(stored.shape)

    def table(self, name: str, padding_idx: int | None = None) -> StoredTable:
        stored = check_table(self.find(name))
        source, width = self._open_rows(stored), stored.shape[1]
        return StoredTable(source, width, DTYPES[stored.dtype], padding_idx=padding_idx, name=stored.name)

    def open_tokenizer(self) -> Tokenizer | None:
        return tokenizer_beside(self.folder)

    def parameters(self) -> int | None:
        files = set(self._index.values()) if self._index is not None else self._files
        if any(what_is_at(self.folder / file) != "file" for file in files):
            return None
        return sum(math.prod(stored.shape) for file in files for stored in self._header(file).values())

    def _read_bytes(self, stored: TensorInfo) -> npt.NDArray[np.uint8]:
        return read_span(inside(self.folder, stored.file), stored.offset, stored.nbytes)

    def _open_rows(self, stored: TensorInfo) -> RowSource:
        rows = stored.shape[0]
        return FileRows(inside(self.folder, stored.file), stored.offset, rows, stored.nbytes // rows)

    @cached_property
    def _found(self) -> dict[str, TensorInfo]:
        """Every tensor of every file, where no index says what is where."""
        return gather((self._header(file) for file in sorted(self._files)), self.where)

    def _header(self, file: str) -> dict[str, TensorInfo]:
        if file not in self._headers:
            path = inside(self.folder, file)
            if what_is_at(path) == "nothing":
                named = ", which its index names" if self._index is not None else ""
                raise MissingFileError(f"{self.where} lacks the file {shown(file)}{named}; fetch it as well")
            self._headers[file] = self._read_header(path)
        return self._headers[file]

    def _read_header(self, path: Path) -> dict[str, TensorInfo]:
        return read_header(path)

    def _weight_files(self) -> set[str]:
        """What to believe without an index: model.safetensors, or the shards of one, or all there are."""
        files = {path.name for path in self.folder.glob("*.safetensors")}
        for believed in ({"model.safetensors"}, {file for file in files if file.startswith("model")}):
            if believed & files:
                return believed & files
        return files

    def _read_index(self) -> dict[str, str]:
        path = inside(self.folder, self.index)
        kind = what_is_at(path)
        if kind != "file":
            raise wrong_kind(path, kind)
        try:
            with path.open("rb") as stream:
                data = stream.read(LARGEST_INDEX + 1)
        except OSError as error:
            raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}") from error
        return parse_index(data, shown(path))[0]


def inside(folder: Path, name: str) -> Path:
    """A file of the folder, which is nowhere else; the hub's cache may keep it among its blobs."""
    path = folder / name
    if not path.is_symlink():
        return path
    try:
        real, home = path.resolve(), folder.resolve()
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{shown(path)} is a symbolic link that leads nowhere") from error
    blobs = [above.parent / "blobs" for above in home.parents if above.name == "snapshots"]
    if not any(real.is_relative_to(allowed) for allowed in (home, *blobs)):
        raise CheckpointError(f"{shown(path)} is a symbolic link out of its folder; put the file itself there")
    return path


def beside(folder: Path) -> dict[str, Any] | None:
    """The folder's config.json, or None where there is none."""
    path = inside(folder, "config.json")
    return None if what_is_at(path) == "nothing" else read_config(path)


def tokenizer_beside(folder: Path) -> Tokenizer | None:
    """The folder's tokenizer, or None where there is none; a damaged one is an error."""
    for path in folder.iterdir():
        if path.suffix in {".json", ".model", ".tiktoken", ".txt"}:
            inside(folder, path.name)
    try:
        return open_tokenizer(folder)
    except MissingFileError:
        return None
