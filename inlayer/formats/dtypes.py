"""Numpy dtypes of rows, and the names that files and callers use for them. bfloat16 and FP8 come from ml_dtypes.

[bytes of a row] -> values
- dtypes have the same names in numpy (with ml_dtypes) and in torch, so a name converts one to the other
- see also: decoding rows (tables/stored_table.py), rows with scales (formats/dequantization.py)
Tested in tests/formats/test_dtypes.py.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import ml_dtypes
import numpy as np

from inlayer.errors import DtypeError

if TYPE_CHECKING:
    import torch

FloatDtype: TypeAlias = "str | np.dtype[Any] | type[np.generic] | torch.dtype"  # how a caller names a dtype
# The dtypes a table row can have.
SAFETENSORS_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
}
FLOAT_DTYPES = {dtype.name: dtype for dtype in SAFETENSORS_DTYPES.values()}


def as_float_dtype(dtype: object) -> np.dtype[Any]:
    """Return the numpy dtype for a name, a numpy dtype, or a torch dtype."""
    name = str(dtype).removeprefix("torch.")
    if name not in FLOAT_DTYPES and dtype is not None and not isinstance(dtype, str):  # numpy takes None for float64
        with suppress(TypeError):
            name = np.dtype(dtype).name  # type: ignore[call-overload]
    if name not in FLOAT_DTYPES:
        raise DtypeError(f"dtype is {dtype!r}; it must be one of {', '.join(FLOAT_DTYPES)}")
    return FLOAT_DTYPES[name]
