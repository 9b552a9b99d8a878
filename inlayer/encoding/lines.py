"""Lines of a stream, and the values of a line of JSON.

bytes -> [lines -> values] -> rows of texts
- in constant memory: a line of any length is either returned or skipped, never kept whole
- only values that JSON, float64 and Parquet can represent are accepted
Tested in tests/encoding/test_bad_rows.py and test_commands.py.
"""

from __future__ import annotations

import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from typing import Any

from inlayer.errors import InputError
from inlayer.files import quote

BLOCK = 2**22  # bytes read at once
MAX_TEXT = 2**26  # bytes of one line or field
RARE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\d{19}")  # surrogates and large numbers


class LongLineError(ValueError):
    """A line that is longer than MAX_TEXT."""


def blocks(stream: Any, on_long_line: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Yield blocks of whole lines without their last line break, each with the number of its first line.

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
    """Iterates over the lines of a text stream and counts them.

    A line that is too long raises LongLineError; the next read continues after it.
    """

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


def parse_line(line: bytes) -> Any:
    """Parse a line of JSON. Raises ValueError or InputError if it is not JSON, or if a number would become infinity."""
    return json.loads(line, parse_constant=_not_json, parse_float=_finite)


def check_storable(record: dict[str, Any], line: bytes) -> None:
    """Raise InputError for a value that Parquet cannot store; `line` is the text that the record was parsed from."""
    if not RARE.search(line):
        return
    import pyarrow as pa

    for name, value in record.items():
        try:
            pa.table({name: [value]})
        except (OverflowError, UnicodeError) as error:  # noqa: PERF203
            problem = "a number of more than 64 bits" if isinstance(error, OverflowError) else "a lone surrogate"
            raise InputError(
                f"column {quote(name)} cannot be stored as Parquet, because it contains {problem}; remove it, or use "
                "--out FILE.jsonl"
            ) from None


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    """Parse a number of a JSON value; raise an error instead of returning infinity."""
    if math.isinf(number := float(digits)):
        raise InputError(f"the number {digits[:40]} is too large for float64")
    return number
