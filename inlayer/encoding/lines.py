"""Reads the lines of a stream in constant memory: a line that is too long is skipped without being kept in memory.

bytes -> [lines] -> rows of texts
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import Any

READ_BYTES = 2**22  # bytes read at a time
MAX_TEXT_BYTES = 2**26  # maximum number of bytes in a line or field
TOO_LONG = f"more than {MAX_TEXT_BYTES:,} bytes, the limit for one text"


def blocks(stream: Any, on_long_line: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines without their last line break, each with the number of its first line.

    A line that is too long is skipped; `on_long_line` gets its number.
    """
    number = 1
    while data := stream.read(READ_BYTES):
        last = data.rfind(b"\n") + 1  # the start of the last line, which is completed here
        data += stream.readline(MAX_TEXT_BYTES + 1)
        is_long = len(data) - last - data.endswith(b"\n") > MAX_TEXT_BYTES
        if whole := data[:last] if is_long else data:
            yield number, whole.removeprefix(BOM_UTF8 if number == 1 else b"").removesuffix(b"\n")
            number += whole.count(b"\n")
        if is_long:
            on_long_line(number)
            number += 1
            while not data.endswith(b"\n") and (data := stream.readline(READ_BYTES)):
                pass


class CountedLines:
    """Reads the lines of a text stream and counts them."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.number = stream, 0

    def read(self) -> str:
        """Return the next line, or "" at the end. Raises csv.Error if it is too long; the next call skips it."""
        line: str = self.stream.readline(MAX_TEXT_BYTES)
        self.number += bool(line)
        if len(line) < MAX_TEXT_BYTES or line.endswith(("\n", "\r")):
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self.stream.readline(READ_BYTES)
        raise csv.Error("line larger than field limit")
