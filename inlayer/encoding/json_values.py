"""The values of a line of JSON: those that JSON itself, float64 and Parquet can represent.

bytes -> lines -> [values] -> rows of texts
Tested in tests/encoding/test_bad_rows.py and test_commands.py.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from inlayer.errors import InputError
from inlayer.files import quoted

RARE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\d{19}")  # surrogates and large numbers


def parse_line(line: bytes) -> Any:
    """Parse a line; ValueError or InputError for what is not JSON, or would become infinity."""
    return json.loads(line, parse_constant=_not_json, parse_float=_finite)


def check_storable(record: dict[str, Any], line: bytes) -> None:
    """InputError for a value that Parquet cannot store; `line` is what the record was parsed from."""
    if not RARE.search(line):
        return
    import pyarrow as pa

    for name, value in record.items():
        try:
            pa.table({name: [value]})
        except (OverflowError, UnicodeError) as error:  # noqa: PERF203
            problem = "a number of more than 64 bits" if isinstance(error, OverflowError) else "a lone surrogate"
            raise InputError(
                f"column {quoted(name)} cannot be stored as Parquet, because it contains {problem}; remove it, or use "
                "--out FILE.jsonl"
            ) from None


def _not_json(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _finite(digits: str) -> float:
    """A number of a JSON value; an error instead of infinity."""
    if math.isinf(number := float(digits)):
        raise InputError(f"the number {digits[:40]} is too large for float64")
    return number
