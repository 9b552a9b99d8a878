"""Reads half of the length, since no header is that long."""

import json
import math
from typing import Any

# How many bytes a number of each dtype has.
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "I32": 4, "U8": 1}


def read_header(data: bytes) -> dict[str, Any]:
    """For each tensor of a file: (dtype, shape, start, end), with its place in the file."""
    if len(data) < 8:
        raise ValueError(f"the file has only {len(data)} bytes")
    length = int.from_bytes(data[:4], "little")
    after = 8 + length
    if after > len(data):
        raise ValueError(f"the header is said to have {length} bytes; the file has {len(data)} in all")
    header = json.loads(data[8:after])
    if not isinstance(header, dict):
        raise ValueError("the header is no object")
    header.pop("__metadata__", None)
    return {name: place_of(name, entry, after, len(data) - after) for name, entry in header.items()}


def place_of(name: str, entry: dict[str, Any], after: int, left: int) -> tuple[str, tuple[int, ...], int, int]:
    """One tensor, compared with the bytes that are left after the header."""
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in BYTES:
        raise ValueError(f"{name} has the unknown dtype {dtype}")
    if not 0 <= begin <= end <= left:
        raise ValueError(f"{name} lies at {begin} to {end}; there are {left} bytes")
    if end - begin != math.prod(shape) * BYTES[dtype]:
        raise ValueError(f"{name} has {end - begin} bytes, which its shape {shape} does not fill")
    return dtype, shape, after + begin, after + end
