"""Rows from several tensors: shards in order, and FP8 values with their scales, against whole arrays in memory."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest
import torch

from inlayer.formats.dequantization import BlockDecoder
from inlayer.tables.stored_table import ArrayRows, JoinedRows, PairedRows, StoredTable

E4M3, E8M0 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e8m0fnu)


def test_shards_are_one_table() -> None:
    whole = np.arange(60, dtype=np.float32).reshape(15, 4)
    joined = JoinedRows([ArrayRows(part) for part in np.split(whole, [1, 8, 14])])
    table = StoredTable(joined, 4, whole.dtype)
    ids = np.array([[14, 0, 7], [8, 1, 0]])
    assert np.array_equal(table.rows(ids), whole[ids])
    assert np.array_equal(table.weight, whole)
    assert np.array_equal(pickle.loads(pickle.dumps(table)).rows(ids), whole[ids])
    swapped = JoinedRows([ArrayRows(part) for part in (whole[8:], whole[:8])])
    assert not np.array_equal(StoredTable(swapped, 4, whole.dtype).rows(ids), whole[ids])  # control


@pytest.mark.skipif(not hasattr(torch, "float8_e8m0fnu"), reason="compares with a dtype that this torch does not have")
def test_every_scale_and_value_decodes_as_in_torch() -> None:
    """All 254 finite FP8 values under all 255 scales, from 2^-127 to 2^127."""
    codes = np.array([code for code in range(256) if code & 0x7F != 0x7F], np.uint8)
    values = np.tile(codes, (255, 1))  # a row for each scale, in two blocks of 127
    scales = np.stack([np.arange(255), np.arange(255)[::-1]], axis=1).astype(np.uint8)
    decode_rows = BlockDecoder(packing="byte", dtype=E4M3, width=254, value_bytes=254, scale_dtype=E8M0, block=127)
    paired = PairedRows(ArrayRows(values), ArrayRows(scales))
    table = StoredTable(paired, 254, np.dtype(np.float32), decode_rows=decode_rows, dtype=np.dtype(ml_dtypes.bfloat16))
    blocks = torch.from_numpy(values).view(torch.float8_e4m3fn).float().view(255, 2, 127)
    factors = torch.from_numpy(scales).view(torch.float8_e8m0fnu).float()
    theirs = (blocks * factors[..., None]).view(255, 254).bfloat16()
    ids = np.array([0, 254, 7, 7, 100])
    ours = torch.from_numpy(table.rows(ids).view(np.int16)).view(torch.bfloat16)
    assert torch.equal(ours, theirs[ids])
    assert torch.equal(torch.from_numpy(table.weight.view(np.int16)).view(torch.bfloat16), theirs)
    assert theirs.unique().numel() > 1000
    assert not torch.equal(ours, theirs[ids].flip(1))  # control
