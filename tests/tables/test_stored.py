"""StoredTable: whatever its bytes are and wherever they lie, the rows of the same table in memory."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from inlayer.embeddings import Embeddings
from inlayer.errors import DtypeError, IdRangeError, ShapeError
from inlayer.formats.row_file import FileRows
from inlayer.head import Head
from inlayer.tables import StoredTable, Table

ROWS, WIDTH = 50, 8


@pytest.fixture
def plain() -> torch.Tensor:
    return torch.randn(ROWS, WIDTH)


@pytest.fixture
def stored(tmp_path: Path, plain: torch.Tensor) -> StoredTable:
    path = tmp_path / "rows"
    path.write_bytes(plain.numpy().tobytes())
    return StoredTable(FileRows(path, 0, ROWS, 4 * WIDTH), WIDTH, torch.float32, padding_idx=1, name="wte")


@pytest.fixture
def halved(tmp_path: Path, plain: torch.Tensor) -> StoredTable:
    """A table whose bytes are not its values: whole numbers, half of which are meant."""
    path = tmp_path / "halves"
    path.write_bytes((plain * 10).to(torch.int8).numpy().tobytes())

    def decode(raw: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(raw).view(torch.int8).float() / 2

    return StoredTable(FileRows(path, 0, ROWS, WIDTH), WIDTH, torch.float32, decode=decode)


def test_rows(stored: StoredTable, halved: StoredTable, plain: torch.Tensor) -> None:
    ids = torch.tensor([[3, 3, 49], [0, 7, 3]])
    assert torch.equal(stored(ids), plain[ids])
    assert torch.equal(halved(ids), ((plain * 10).to(torch.int8).float() / 2)[ids])
    for table in (stored, halved):
        assert torch.equal(table(ids), table.weight[ids])
        assert torch.equal(torch.cat([rows for _, rows in table.blocks(7)]), table.weight)
        assert [start for start, _ in table.blocks(7)] == list(range(0, ROWS, 7))
        assert table(torch.empty(0, dtype=torch.int64)).shape == (0, WIDTH)
        assert table(ids.to(torch.uint8)).shape == (2, 3, WIDTH)
        assert not torch.equal(table(ids), table.weight[ids.flip(1)])  # control


def test_ids_are_checked(stored: StoredTable) -> None:
    with pytest.raises(IdRangeError, match=r"id 50 at \[1\] is outside 0\.\.49"):
        stored(torch.tensor([0, 50]))
    with pytest.raises(IdRangeError, match="id -1"):
        stored(torch.tensor([-1]))
    with pytest.raises(DtypeError):
        stored(torch.tensor([0.5]))


def test_to_reads_nothing_and_gives_the_bits_of_a_converted_table(stored: StoredTable, plain: torch.Tensor) -> None:
    ids = torch.arange(ROWS)
    twin = copy.deepcopy(stored).to(torch.bfloat16)
    assert twin._whole is None
    assert torch.equal(twin(ids), plain.to(torch.bfloat16))
    assert torch.equal(twin.weight, plain.to(torch.bfloat16))
    assert (stored.dtype, stored(ids).dtype) == (torch.float32, torch.float32)
    assert nn.ModuleList([stored]).half()[0](ids).dtype == torch.float16


def test_in_memory_it_can_learn(stored: StoredTable, plain: torch.Tensor) -> None:
    table = stored.in_memory()
    assert isinstance(table, Table)
    assert (torch.equal(table.weight, plain), table.padding_idx) == (True, 1)
    table(torch.tensor([2, 1])).sum().backward()
    assert table.weight.grad is not None
    assert (table.weight.grad[2].tolist(), table.weight.grad[1].tolist()) == ([1.0] * WIDTH, [0.0] * WIDTH)
    with torch.no_grad():
        table.weight.zero_()
    assert torch.equal(stored.weight, plain)


def test_a_layer_takes_it_and_a_head_is_tied_to_it_without_reading_it(stored: StoredTable, plain: torch.Tensor) -> None:
    layer = Embeddings(ROWS, WIDTH, positions="rotary")
    layer.set_input_embeddings(stored)
    head = Head(WIDTH, ROWS, device="meta")
    layer.tie(head)
    assert (head.vocab_size, layer.vocab_size, layer.dtype, layer.padding_idx) == (ROWS, ROWS, torch.float32, 1)
    assert stored._whole is None
    assert torch.equal(layer(torch.tensor([[4, 2]])), plain[torch.tensor([[4, 2]])])
    hidden = torch.randn(3, WIDTH)
    assert torch.equal(head(hidden), nn.functional.linear(hidden, plain))
    with pytest.raises(ShapeError, match="have width 8; this layer's have 9"):
        Embeddings(ROWS, 9).set_input_embeddings(stored)
