"""Quantized rows of safetensors files: packed values and their scales, decoded to float32.

bytes of rows -> [decoder] -> rows
- a quantized row (FP8 with block scales, MXFP4, NVFP4, grouped int4) is its packed values followed by its scales, each
  for a block of neighboring channels. FP4 values are E2M1, two per byte, the first in the low half; int4 values are 8
  per 32-bit word, offset by 8. The product is float32, and rounded to a different dtype only if one is requested
- see also: which tensors have the values and the scales (checkpoint/find_quantized.py), ggml types
  (formats/gguf_dequantization.py)
Tested against float64 loops and transformers in tests/checkpoint/test_find_quantized.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from inlayer.formats.dtypes import SAFETENSORS_DTYPES

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

    def __call__(self, raw: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        """Decode raw rows (n, bytes) to rows (n, D)."""
        values = self._unpack(np.ascontiguousarray(raw[:, : self.value_bytes]))[:, : self.width]
        factor = np.float32(self.factor)
        with np.errstate(all="ignore"):  # NaN and overflow are values like any other
            if self.scale_dtype is None:
                return np.asarray(values * factor, np.float32)
            scales = np.ascontiguousarray(raw[:, self.value_bytes :]).view(self.scale_dtype).astype(np.float32)
            values = values * np.repeat(scales, self.block, axis=1)[:, : self.width]  # exact for FP4: rounded once
            return np.asarray(values / factor if self.divides else values * factor, np.float32)

    def _unpack(self, packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
        if self.packing == "byte":
            return packed.view(self.dtype).astype(np.float32)
        # Both formats have the first of two values in the low half of a byte.
        halves = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)
        return E2M1[halves] if self.packing == "fp4" else halves.astype(np.float32) - INT4_OFFSET
