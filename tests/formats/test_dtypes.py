"""Dtypes by name: torch, numpy and ml_dtypes agree on names."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from inlayer.errors import DtypeError
from inlayer.formats.dtypes import FLOAT_DTYPES, as_float_dtype
from inlayer.tensors import to_tensor, torch_dtype


@pytest.mark.parametrize("name", FLOAT_DTYPES)
def test_every_spelling_of_a_dtype(name: str) -> None:
    dtype = FLOAT_DTYPES[name]
    for spelling in (name, dtype, dtype.type, getattr(torch, name)):
        assert as_float_dtype(spelling) == dtype
    assert torch_dtype(dtype) == getattr(torch, name)
    assert torch_dtype(dtype).itemsize == dtype.itemsize


@pytest.mark.parametrize("value", ["int8", "float", "half", np.int64, torch.int32, torch.bool, 3, object()])
def test_other_values_are_an_error(value: object) -> None:
    with pytest.raises(DtypeError, match="must be one of float64, float32, float16, bfloat16"):
        as_float_dtype(value)


def test_tensors_share_memory_with_arrays() -> None:
    for dtype in (np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)):
        array = np.zeros((2, 3), dtype)
        to_tensor(array)[1, 2] = 5
        assert float(array[1, 2]) == 5.0
    assert to_tensor(np.zeros((), ml_dtypes.bfloat16)).shape == ()
    assert to_tensor(np.zeros((0, 4), ml_dtypes.bfloat16)).shape == (0, 4)
