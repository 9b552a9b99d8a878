"""Lines of a stream in constant memory: a line of any length is either returned or skipped, never kept whole.

bytes -> [lines] -> rows of texts
Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import Any

BLOCK = 2**22  # bytes read at once
MAX_TEXT = 2**26  # bytes of one line or field


class LongLineError(ValueError):
    """A line that is longer than MAX_TEXT."""


def blocks(stream: Any, on_long_line: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines without their last line break, each with the number of its first line.

    A line that is too long is skipped; `on_long_line` gets its number.
    """
    rest, number, skipping = [b""], 1, False
    while data := stream.read(BLOCK):
        data = data.removeprefix(BOM_UTF8) if number == 1 and rest == [b""] and not skipping else data
        end = data.find(b"\n")
        if not skipping and sum(map(len, rest)) + (len(data) if end < 0 else end) > MAX_TEXT:
            on_long_line(number)
            rest, skipping = [b""], True
        if skipping:
            if end < 0:
                continue
            data, number, skipping = data[end + 1 :], number + 1, False
        cut = data.rfind(b"\n")
        if cut < 0:
            rest.append(data)
            continue
        block = b"".join([*rest, data[:cut]])
        rest = [data[cut + 1 :]]
        yield number, block
        number += block.count(b"\n") + 1
    if any(rest):
        yield number, b"".join(rest)


class CountedLines:
    """The lines of a text stream, counted; LongLineError for one that is too long, after which the next one follows."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.number = stream, 0

    def __iter__(self) -> CountedLines:
        return self

    def __next__(self) -> str:
        line: str = self.stream.readline(MAX_TEXT)
        if not line:
            raise StopIteration
        self.number += 1
        if len(line) < MAX_TEXT or line.endswith(("\n", "\r")):
            return line
        while line and not line.endswith(("\n", "\r")):
            line = self.stream.readline(BLOCK)
        raise LongLineError
