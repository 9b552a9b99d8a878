"""The index of a remote checkpoint: only the necessary part is read.

[checkpoint] -> Embeddings, Head, tokenizer
- the index of a model with many experts is larger than its tokenizer, and usually names the table near its start or its
  end. These two parts are searched as text first; only then is everything read
- what a search finds is a hint: the header of the file it names decides
Tested against the whole index in tests/checkpoint/remote/test_store.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from inlayer.checkpoint.remote.source import RemoteFile
from inlayer.checkpoint.shards import MAX_INDEX, check_file, parse_index
from inlayer.errors import CheckpointError

__all__ = ["RemoteIndex"]

PART = 64 << 10  # bytes; the whole index of most models


class RemoteIndex(Mapping[str, str]):
    """The weight_map of a checkpoint: file by tensor name."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._size = file, file.size
        if self._size > MAX_INDEX:
            raise CheckpointError(f"{file} has {self._size:,} bytes; an index has at most {MAX_INDEX:,}")
        self._parts = [file.read(0, min(PART, self._size))]
        self._files: Mapping[str, str] | None = None

    def find(self, names: Sequence[str]) -> str | None:
        """The first of these names that is in the index; of the part that was read, while one of them is there."""
        for name in names:
            if self._search(name):
                return name
        return next((name for name in names if name in self.files), None)

    def metadata(self, name: str) -> int | None:
        """A number in the metadata, which stands at the start or the end; None if it is not there."""
        pattern = re.compile(rb'"%s"\s*:\s*([0-9]{1,18})\s*[,}]' % re.escape(name).encode())
        found = next(filter(None, map(pattern.search, self._ends())), None)
        return int(found[1]) if found is not None else None

    @property
    def files(self) -> Mapping[str, str]:
        """File by tensor name for all tensors; reads the whole index."""
        if self._files is None:
            start = self._parts[0]
            rest = self._file.read(len(start), self._size)
            self._files, _ = parse_index(start + rest, str(self._file))
        return self._files

    def _ends(self) -> list[bytes]:
        if len(self._parts) == 1 and self._size > PART:
            self._parts.append(self._file.read(max(PART, self._size - PART), self._size))
        return self._parts

    def _search(self, name: str) -> str | None:
        """The file of a tensor whose name is in the first or the last part."""
        if self._files is not None:
            return self._files.get(name)
        pattern = re.compile(rb"(?<!\\)" + re.escape(json.dumps(name).encode()) + rb'\s*:\s*"([^"\\]{0,1000})"')
        found = next(filter(None, map(pattern.search, self._ends())), None)
        return check_file(found[1].decode(errors="replace"), name, str(self._file)) if found is not None else None

    def __getitem__(self, name: str) -> str:
        return self._search(name) or self.files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)
