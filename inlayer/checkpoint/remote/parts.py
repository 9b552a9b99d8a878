"""An index on the hub, read in parts: as much of it as the question needs.

[checkpoint] -> Embeddings, Head, tokenizer
- the index of a model with many experts is several times as large as its tokenizer, and the table is mostly named near
  its start (sorted names) or near its end: the start is read first, then the end
- if that does not help, the headers of the first and the last shard are smaller than the rest of such an index, and
  mostly hold the table and the head. Only then the middle is read, in growing steps
- a part is searched as text. What that finds is only where to look: the header of the file it names has the last word
- once all parts are there they are parsed by the rules of any index (checkpoint/shards.py)
Checked against the whole index in tests/checkpoint/remote/test_hub.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence

from inlayer.checkpoint.remote.ranges import RemoteFile
from inlayer.checkpoint.remote.transfer import AbsentError
from inlayer.checkpoint.shards import MAX_INDEX, check_file, parse_index
from inlayer.errors import CheckpointError

__all__ = ["RemoteIndex"]

FIRST_PART = 64 << 10  # bytes; the whole index of most models
GROWTH = 4
LARGEST_PART = 4 << 20
NUMBER = rb'"%s"\s*:\s*([0-9]{1,18})\s*[,}]'

NUMBERED = re.compile(rb'"([^"\\/]{0,200}-)(\d{1,6})(-of-(\d{1,6})\.safetensors)"')


class RemoteIndex:
    """The weight_map of a checkpoint: file by tensor name. `header` gives the names of the tensors in a file."""

    def __init__(self, file: RemoteFile, header: Callable[[str], Collection[str]]) -> None:
        self.file, self.where, self.header = file, str(file.place), header
        self._start = file.read(0, FIRST_PART)  # an error where there is no index at all
        self._end = b""
        self._step = FIRST_PART
        self._files: dict[str, str] | None = None
        if file.size > MAX_INDEX:
            raise CheckpointError(f"{self.where} has {file.size:,} bytes; an index has at most {MAX_INDEX:,}")

    def files(self) -> dict[str, str]:
        """File by tensor name, of all tensors: reads all of the index."""
        if self._files is None:
            while self._read_more():
                pass
            self._files, _ = parse_index(self._start + self._end, self.where)
        return self._files

    def first_of(self, names: Sequence[str]) -> tuple[str, str] | None:
        """A tensor of one of these names, and its file.

        Where several are in the part that is read, it is the first in the order given; the rest of the index is only
        read while none was found.
        """
        if not names:
            return None
        while self._files is None and not self._complete():
            found = self._search(names) or (self._search_ends(names) if self._end else None)
            if found is not None:
                return found
            self._read_more()
        files = self.files()
        return next(((name, files[name]) for name in names if name in files), None)

    def number(self, name: str) -> int | None:
        """An entry of the metadata, which stands at the start or the end; None where it is not there."""
        pattern = re.compile(NUMBER % re.escape(name).encode())
        found = pattern.search(self._start) or pattern.search(self._end)
        return int(found[1]) if found is not None else None

    def _complete(self) -> bool:
        return len(self._start) + len(self._end) == self.file.size

    def _read_more(self) -> bool:
        """Read the next part; False if there is none."""
        if self._complete():
            return False
        first, size = len(self._start), self.file.size
        if not self._end:
            self._end = self.file.read(max(first, size - FIRST_PART), size)
        else:
            self._step = min(self._step * GROWTH, LARGEST_PART)
            self._start += self.file.read(first, min(first + self._step, size - len(self._end)))
        return True

    def _search(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first of the names in the parts that were read."""
        for name in names:
            key = re.escape(json.dumps(name).encode())
            pattern = re.compile(rb"(?<!\\)" + key + rb'\s*:\s*"([^"\\]{0,1000})"')
            found = pattern.search(self._start) or pattern.search(self._end)
            if found is not None:
                return name, check_file(found[1].decode(errors="replace"), name, self.where)
        return None

    def _search_ends(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first of the names in the first and the last shard, where shards are numbered."""
        found = NUMBERED.search(self._start, 0, FIRST_PART)
        if found is None:
            return None
        before, number, after, total = (part.decode(errors="replace") for part in found.groups())
        width = len(number) if number.startswith("0") else 1
        for shard in (1, int(total)):
            file = check_file(f"{before}{shard:0{width}}{after}", names[0], self.where)
            try:
                held = self.header(file)
            except AbsentError:  # the numbers mean something else
                continue
            for name in names:
                if name in held:
                    return name, file
        return None
