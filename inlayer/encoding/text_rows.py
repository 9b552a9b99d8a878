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
    location_prefix: str  # such as "a.txt, line"
    numbers: Sequence[int] | None  # line or row numbers; None for a single text, which `location_prefix` names

    def slice(self, start: int, end: int) -> TextRows:
        """Return rows `start` to `end`."""
        part = slice(start, end)
        return TextRows(
            self.texts[part], None if self.others is None else self.others[part],
            self.location_prefix, None if self.numbers is None else self.numbers[part],
        )  # fmt: skip

    def take(self, kept: list[int]) -> TextRows:
        """Return the rows with these indices."""
        others = self.others
        if others is not None:
            rows = np.array(kept, np.int64)  # for Arrow, an empty list has no type
            others = [others[index] for index in kept] if isinstance(others, list) else others.take(rows)
        numbers = None if self.numbers is None else [self.numbers[index] for index in kept]
        return TextRows([self.texts[index] for index in kept], others, self.location_prefix, numbers)

    def location(self, index: int) -> str:
        """Say where a row comes from."""
        return self.location_prefix if self.numbers is None else f"{self.location_prefix} {self.numbers[index]}"

    def other_bytes(self) -> bytes:
        """Return the other columns as bytes, for a checksum."""
        if self.others is None:
            return b""
        if isinstance(self.others, list):
            return repr(self.others).encode(errors="surrogatepass")
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.others.schema) as stream:  # a batch lacks column names and categories
            stream.write_table(self.others.combine_chunks())
        data: bytes = sink.getvalue().to_pybytes()
        return data
