"""Task read_header: read the header of a safetensors file."""

import json
import math
from typing import Any

# Bytes per value of each dtype.
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "I32": 4, "U8": 1}


def read_header(data: bytes) -> dict[str, Any]:
    """Return (dtype, shape, start, end) for each tensor, with offsets in the file."""
    if len(data) < 8:
        raise ValueError(f"the file is only {len(data)} bytes long")
    length = int.from_bytes(data[:8], "little")
    after = 8 + length
    if after > len(data):
        raise ValueError(f"the header claims {length} bytes, but only {len(data) - 8} follow")
    header = json.loads(data[8:after])
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    return {name: place_of(name, entry, after, len(data) - after) for name, entry in header.items()}


def place_of(name: str, entry: dict[str, Any], after: int, left: int) -> tuple[str, tuple[int, ...], int, int]:
    """Check one tensor against the bytes after the header."""
    dtype, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    if dtype not in BYTES:
        raise ValueError(f"{name} has the unknown dtype {dtype}")
    if not 0 <= begin <= end <= left:
        raise ValueError(f"{name} is at {begin} to {end}, but there are only {left} bytes")
    if end - begin != math.prod(shape) * BYTES[dtype]:
        raise ValueError(f"{name} is {end - begin} bytes long, which does not match its shape {shape}")
    return dtype, shape, after + begin, after + end
