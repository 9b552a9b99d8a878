"""Quantized rows, decoded to float32: ggml types, and the packed values and scales of safetensors files.

bytes of rows -> [decoder] -> rows
- ggml: a row is a whole number of blocks, each with its own scales. F64, F32, F16, and BF16 keep their dtype; the
  others are dequantized by the `gguf` package (an extra)
- safetensors (FP8 with block scales, MXFP4, NVFP4, grouped int4): a row is its packed values followed by its scales,
  each for a block of neighboring channels. FP4 values are E2M1, two per byte, the first in the low half; int4 values
  are 8 per 32-bit word, offset by 8. The product is float32, and rounded to a different dtype only if one is requested
- see also: GGUF headers (formats/gguf_header.py), finding the tensors with values and scales in a safetensors file
  (checkpoint/find_quantized.py)
Tested against the `gguf` package in tests/formats/test_dequantization.py, and against float64 loops and transformers in
tests/checkpoint/test_find_quantized.py.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

from inlayer.errors import DtypeError, MissingExtraError
from inlayer.formats.dtypes import SAFETENSORS_DTYPES
from inlayer.shapes import Bytes, Vectors

CHUNK_VALUES = 1 << 24  # values decoded per call, because the package makes several temporary copies


# Each storage type: its number in a GGUF file, values per block, bytes per block.
GGML_TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "BF16": (30, 1, 2), "F64": (28, 1, 8), "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 40),
    "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292), "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82), "IQ4_XS": (23, 256, 136), "IQ1_M": (29, 256, 56), "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17), "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "I8": (24, 1, 1),
    "I16": (25, 1, 2), "I32": (26, 1, 4), "I64": (27, 1, 8),
}  # fmt: skip

PLAIN = {kind: SAFETENSORS_DTYPES[kind] for kind in ("F64", "F32", "F16", "BF16")}


def row_bytes(kind: str, width: int) -> int:
    """Return the number of bytes of a row of `width` values, a whole number of blocks."""
    _, values, nbytes = GGML_TYPES[kind]
    return width // values * nbytes


def make_dequantizer(kind: str, width: int) -> Callable[[Bytes], Vectors] | None:
    """Return a function from bytes (n, row_bytes) to float32 rows (n, width); None if the bytes are the values."""
    if kind in PLAIN:
        return None
    if importlib.util.find_spec("gguf") is None:
        raise MissingExtraError(f"rows of type {kind} need the gguf package: pip install 'inlayer[gguf]'")
    try:
        _dequantize(kind, width, np.zeros((1, row_bytes(kind, width)), np.uint8))
    except (KeyError, NotImplementedError):
        raise DtypeError(f"rows of type {kind} cannot be decoded to floating point by the gguf package") from None
    return partial(_dequantize, kind, width)


def _dequantize(kind: str, width: int, raw: Bytes) -> Vectors:
    """Decode rows. A module-level function with plain arguments, so tables can be pickled and copied."""
    from gguf import GGMLQuantizationType, quants  # optional, and slow to import

    ggml_type = GGMLQuantizationType[kind]
    rows = np.empty((len(raw), width), np.float32)
    chunk = max(1, CHUNK_VALUES // width)
    # The bytes are untrusted: infinite and NaN scales are possible.
    with np.errstate(all="ignore"):
        for start in range(0, len(raw), chunk):
            block = np.ascontiguousarray(raw[start : start + chunk])
            rows[start : start + chunk] = quants.dequantize(block, ggml_type)
    return rows


# -- safetensors --

Packing: TypeAlias = Literal["byte", "fp4", "int4"]
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
INT4_OFFSET = 8
SCALE_DTYPES: dict[str, np.dtype[Any]] = SAFETENSORS_DTYPES | {
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "U8": np.dtype(ml_dtypes.float8_e8m0fnu),  # MXFP4 stores exponents as bytes
}


@dataclass(frozen=True, kw_only=True)
class BlockDecoder:
    """Decodes rows of `value_bytes` packed bytes, followed by scales for `block` channels each."""

    packing: Packing
    dtype: np.dtype[Any]  # dtype of one-byte values
    width: int
    value_bytes: int
    scale_dtype: np.dtype[Any] | None  # None: `factor` is the only scale
    block: int = 1
    factor: float = 1.0  # multiplied into every value
    divides: bool = False  # values are divided by the factor instead

    def __call__(self, raw: Bytes) -> Vectors:
        """Decode raw rows (n, bytes) to rows (n, D)."""
        values = self._unpack(np.ascontiguousarray(raw[:, : self.value_bytes]))[:, : self.width]
        factor = np.float32(self.factor)
        with np.errstate(all="ignore"):  # NaN and overflow are ordinary values here
            if self.scale_dtype is None:
                return np.asarray(values * factor, np.float32)
            scales = np.ascontiguousarray(raw[:, self.value_bytes :]).view(self.scale_dtype).astype(np.float32)
            values = values * np.repeat(scales, self.block, axis=1)[:, : self.width]  # exact for FP4: rounded once
            return np.asarray(values / factor if self.divides else values * factor, np.float32)

    def _unpack(self, packed: Bytes) -> Vectors:
        if self.packing == "byte":
            return packed.view(self.dtype).astype(np.float32)
        # In both formats, the first of two values is in the low half of a byte.
        halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
        return E2M1[halves] if self.packing == "fp4" else halves.astype(np.float32) - INT4_OFFSET
