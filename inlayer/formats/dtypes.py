"""Floating-point dtypes by name: the names of torch, of numpy (with ml_dtypes) and of safetensors.

- numpy's dtypes and torch's have the same names, so that a name converts one to the other (tensors.py)
Tested in tests/formats/test_dtypes.py.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from inlayer.errors import DtypeError

__all__ = ["FLOAT_DTYPES", "SAFETENSORS_DTYPES", "as_float_dtype"]

# The dtypes that a row of a table can have.
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
    """The numpy dtype for a name, a numpy dtype or a torch dtype."""
    name = str(dtype).removeprefix("torch.")
    if name not in FLOAT_DTYPES and not isinstance(dtype, str):
        try:
            name = np.dtype(dtype).name  # type: ignore[call-overload]
        except TypeError:
            name = ""
    if name not in FLOAT_DTYPES:
        raise DtypeError(f"dtype is {dtype!r}; it must be one of {', '.join(FLOAT_DTYPES)}")
    return FLOAT_DTYPES[name]
