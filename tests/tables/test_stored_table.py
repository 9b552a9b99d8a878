"""Stored tables: numpy rows and torch modules are equal to the same table in memory."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

from inlayer.embeddings import Embeddings
from inlayer.errors import DtypeError, IdRangeError, ShapeError
from inlayer.formats.dtypes import FLOAT_DTYPES
from inlayer.formats.row_reader import FileRows
from inlayer.head import Head
from inlayer.tables import StoredEmbedding, StoredTable, Table
from inlayer.tensors import to_tensor, torch_dtype

ROWS, WIDTH = 50, 8
FLOAT32 = np.dtype(np.float32)


@pytest.fixture
def values() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((ROWS, WIDTH), dtype=np.float32)


@pytest.fixture
def plain(tmp_path: Path, values: np.ndarray) -> StoredTable:
    (tmp_path / "rows").write_bytes(values.tobytes())
    source = FileRows(tmp_path / "rows", 0, ROWS, 4 * WIDTH)
    return StoredTable(source, WIDTH, FLOAT32, padding_idx=1, name="wte")


def half(raw: np.ndarray) -> np.ndarray:
    return raw.view(np.int8).astype(np.float32) / 2


@pytest.fixture
def decoded(tmp_path: Path, values: np.ndarray) -> StoredTable:
    """A table whose bytes are not its values: it stores twice each value as int8."""
    (tmp_path / "halves").write_bytes((values * 10).astype(np.int8).tobytes())
    return StoredTable(FileRows(tmp_path / "halves", 0, ROWS, WIDTH), WIDTH, FLOAT32, decode_rows=half)


def test_rows_for_ids_of_any_shape(plain: StoredTable, decoded: StoredTable, values: np.ndarray) -> None:
    ids = np.array([[3, 3, 49], [0, 7, 3]])
    assert np.array_equal(plain.rows(ids), values[ids])
    assert np.array_equal(decoded.rows(ids), ((values * 10).astype(np.int8).astype(np.float32) / 2)[ids])
    for table in (plain, decoded):
        assert (table.shape, table.dtype, table.rows(3).shape) == ((ROWS, WIDTH), FLOAT32, (WIDTH,))
        assert len(table) == ROWS
        assert np.array_equal(table.rows([[3, 3], [0, 7]]), table.weight[[[3, 3], [0, 7]]])
        assert np.array_equal(table.rows(ids.astype(np.uint8)), table.rows(ids))
        assert table.rows([]).shape == (0, WIDTH)
        assert np.array_equal(np.concatenate([rows for _, rows in table.blocks(7)]), table.weight)
        assert [start for start, _ in table.blocks(7)] == list(range(0, ROWS, 7))
        assert not np.array_equal(table.rows(ids), table.weight[ids[:, ::-1]])  # control


def test_numpy_ids_are_checked(plain: StoredTable) -> None:
    with pytest.raises(IdRangeError, match=r"id 50 at \[1\] is outside 0\.\.49"):
        plain.rows([0, 50])
    with pytest.raises(IdRangeError, match=r"id -1 is outside"):
        plain.rows(-1)
    with pytest.raises(IdRangeError, match="does not fit in 64 bits"):
        plain.rows([2**70])
    with pytest.raises(IdRangeError, match=r"^id of 16,610 bits at position 0 of ids does not fit in 64 bits$"):
        plain.rows([10**5000])  # more digits than Python converts
    for ids in ([0.5], [True], ["0"]):
        with pytest.raises(DtypeError, match="ids must be integers"):
            plain.rows(ids)
    with pytest.raises(ShapeError, match="rows of different lengths"):
        plain.rows([[0], [0, 1]])


def test_torch_ids_are_checked(plain: StoredTable) -> None:
    module = StoredEmbedding(plain)
    with pytest.raises(IdRangeError, match=r"id 50 at \[1\] is outside 0\.\.49"):
        module(torch.tensor([0, 50]))
    with pytest.raises(IdRangeError, match="id -1"):
        module(torch.tensor([-1]))
    with pytest.raises(DtypeError):
        module(torch.tensor([0.5]))


@pytest.mark.parametrize("name", FLOAT_DTYPES)
def test_every_dtype_gives_the_values_of_a_table_in_memory(tmp_path: Path, name: str) -> None:
    """numpy rows of every dtype, converted to float32 and bfloat16, have torch's bits."""
    values = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype(FLOAT_DTYPES[name])
    (tmp_path / "rows").write_bytes(values.tobytes())
    table = StoredTable(FileRows(tmp_path / "rows", 0, ROWS, values[0].nbytes), WIDTH, FLOAT_DTYPES[name])
    memory = torch.frombuffer(bytearray(values.tobytes()), dtype=torch_dtype(table.dtype)).view(ROWS, WIDTH)
    ids = torch.tensor([4, 0, 4])
    for dtype in (table.dtype, FLOAT32, np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        converted = table.astype(dtype)
        bytes_of_all = memory.to(torch_dtype(dtype)).view(torch.uint8)
        expected = bytes_of_all[ids]
        assert converted.rows(ids).dtype == dtype
        assert torch.equal(to_tensor(converted.rows(ids)).view(torch.uint8), expected)
        assert torch.equal(StoredEmbedding(converted)(ids).view(torch.uint8), expected)
        assert torch.equal(to_tensor(converted.weight).view(torch.uint8), bytes_of_all)
    assert pickle.loads(pickle.dumps(table)).rows(3).tobytes() == values[3].tobytes()


def test_module_looks_up_the_same_rows(plain: StoredTable, decoded: StoredTable) -> None:
    ids = torch.tensor([[3, 3, 49], [0, 7, 3]])
    for table in (plain, decoded):
        module = StoredEmbedding(table)
        assert torch.equal(module(ids), torch.from_numpy(table.rows(ids)))
        assert torch.equal(module(ids), module.weight[ids])
        assert module(torch.empty(0, dtype=torch.int64)).shape == (0, WIDTH)
        assert torch.equal(module(ids.to(torch.uint8)), module(ids))


def test_casting_the_module_reads_nothing(plain: StoredTable, values: np.ndarray) -> None:
    module, ids = StoredEmbedding(plain), torch.arange(ROWS)
    cast = copy.deepcopy(module).to(torch.bfloat16)
    assert cast._whole is None
    assert torch.equal(cast(ids), torch.from_numpy(values).to(torch.bfloat16))
    assert torch.equal(cast.weight, torch.from_numpy(values).to(torch.bfloat16))
    assert (module.dtype, module(ids).dtype) == (torch.float32, torch.float32)
    assert nn.ModuleList([module]).half()[0](ids).dtype == torch.float16


def test_in_memory_copy_can_be_trained(plain: StoredTable, values: np.ndarray) -> None:
    module = StoredEmbedding(plain)
    table = module.in_memory()
    assert isinstance(table, Table)
    assert (torch.equal(table.weight, torch.from_numpy(values)), table.padding_idx) == (True, 1)
    table(torch.tensor([2, 1])).sum().backward()
    assert table.weight.grad is not None
    assert (table.weight.grad[2].tolist(), table.weight.grad[1].tolist()) == ([1.0] * WIDTH, [0.0] * WIDTH)
    with torch.no_grad():
        table.weight.zero_()
    assert torch.equal(module.weight, torch.from_numpy(values))


def test_layer_and_tied_head_do_not_read_the_whole_table(plain: StoredTable, values: np.ndarray) -> None:
    module, rows = StoredEmbedding(plain), torch.from_numpy(values)
    layer = Embeddings(ROWS, WIDTH, positions="rotary")
    layer.set_input_embeddings(module)
    head = Head(WIDTH, ROWS, device="meta")
    layer.tie(head)
    assert (head.vocab_size, layer.vocab_size, layer.dtype, layer.padding_idx) == (ROWS, ROWS, torch.float32, 1)
    assert module._whole is None
    assert torch.equal(layer(torch.tensor([[4, 2]])), rows[torch.tensor([[4, 2]])])
    hidden = torch.randn(3, WIDTH)
    assert torch.equal(head(hidden), nn.functional.linear(hidden, rows))
    with pytest.raises(ShapeError, match="have width 8; this layer's rows have width 9"):
        Embeddings(ROWS, 9).set_input_embeddings(module)
