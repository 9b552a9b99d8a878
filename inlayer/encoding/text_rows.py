"""TextRows: some rows of the input of `inlayer embed`, with their other columns and their origin.

files -> [rows of texts] -> vectors
- see also: reading them (reader.py), writing them (outputs.py)
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class TextRows(NamedTuple):
    """Texts, the other columns of their rows (one dict per text, or an Arrow table), and where they come from."""

    texts: list[str]
    others: Any
    place: str  # such as "a.txt, line"
    numbers: Sequence[int]  # of the lines or rows

    def slice(self, start: int, end: int) -> TextRows:
        part = slice(start, end)
        return TextRows(self.texts[part], self.others[part], self.place, self.numbers[part])

    def take(self, kept: list[int]) -> TextRows:
        if isinstance(self.others, list):
            others = [self.others[index] for index in kept]
        else:
            others = self.others.take(np.array(kept, np.int64))  # for Arrow, an empty list has no type
        return TextRows(
            [self.texts[index] for index in kept], others, self.place, [self.numbers[index] for index in kept]
        )

    def location(self, index: int) -> str:
        return f"{self.place} {self.numbers[index]}"

    def other_bytes(self) -> bytes:
        """Return the other columns as bytes, for a checksum."""
        if isinstance(self.others, list):
            return repr(self.others).encode(errors="surrogatepass") if any(self.others) else b""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.others.schema) as stream:  # a batch lacks column names and categories
            stream.write_table(self.others.combine_chunks())
        data: bytes = sink.getvalue().to_pybytes()
        return data
