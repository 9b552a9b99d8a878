"""MappedEmbedding: rows of a safetensors file equal the same table in memory; invalid files are errors."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import struct
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from inlayer.errors import DtypeError, IdRangeError, InputError, MissingFileError, ShapeError
from inlayer.tables import MappedEmbedding, look_up

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_file(
        {"wte": torch.arange(44.0).view(11, 4), "norm": torch.ones(4), "counts": torch.ones(3, 3, dtype=torch.int32)},
        tmp_path / "model.safetensors",
    )
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", DTYPES)
def test_same_rows_as_in_memory(tmp_path: Path, dtype: torch.dtype) -> None:
    weight = torch.randn(50, 8).to(dtype)
    save_file({"rows": weight}, tmp_path / "t.safetensors")
    table = MappedEmbedding(tmp_path / "t.safetensors", padding_idx=-1)
    ids = torch.randint(0, 50, (3, 4))
    ours, theirs = table(ids), functional.embedding(ids, weight)
    assert ours.dtype == dtype
    torch.testing.assert_close(ours.view(torch.uint8), theirs.view(torch.uint8), rtol=0, atol=0)
    assert (table.num_embeddings, table.embedding_dim, table.padding_idx, table.table.name) == (50, 8, 49, "rows")
    assert not table.weight.requires_grad


def test_mapped_table_is_a_module_without_parameters_or_state(file: Path) -> None:
    table = MappedEmbedding(file, "wte")
    assert isinstance(table, nn.Module)
    assert (list(table.parameters()), dict(table.state_dict())) == ([], {})
    assert "11, 4" in repr(table)
    assert table(torch.tensor([[1]])).requires_grad is False


def test_opening_reads_no_rows(tmp_path: Path) -> None:
    """A sparse file of 4 GB, opened 100 times: it would not fit into memory if rows were copied."""
    rows, width = 2**20, 1024
    header = json.dumps(
        {"wte": {"dtype": "F32", "shape": [rows, width], "data_offsets": [0, rows * width * 4]}}
    ).encode()
    path = tmp_path / "huge.safetensors"
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(header)) + header)
        stream.truncate(8 + len(header) + rows * width * 4)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("needs /proc")
    before = resident()
    tables = [MappedEmbedding(path) for _ in range(100)]
    assert tables[-1](torch.tensor([rows - 1])).sum() == 0
    assert resident() - before < 2**28


def test_writing_never_changes_the_file(file: Path) -> None:
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    table = MappedEmbedding(file, "wte")
    table.weight[3] = -1.0
    table.weight.numpy()[4] = -2.0
    assert table.weight[3].tolist() == [-1.0] * 4  # this process's copy of the page
    assert table(torch.tensor([3, 4])).tolist() == [[12.0, 13.0, 14.0, 15.0], [16.0, 17.0, 18.0, 19.0]]
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    assert torch.equal(MappedEmbedding(file, "wte").weight, torch.arange(44.0).view(11, 4))


def test_result_outlives_the_table(file: Path) -> None:
    table = MappedEmbedding(file, "wte")
    rows = table(torch.tensor([2]))
    weight = table.weight
    del table
    file.unlink()
    assert rows.tolist() == [[8.0, 9.0, 10.0, 11.0]]
    assert look_up(torch.tensor([10]), weight).tolist() == [[40.0, 41.0, 42.0, 43.0]]


def test_deepcopy_shares_the_mapping_and_cast_does_not(file: Path) -> None:
    model = nn.ModuleDict({"table": MappedEmbedding(file, "wte", padding_idx=0)})
    assert model["table"].weight.shape == (11, 4)  # mapped from here on
    copied = copy.deepcopy(model)
    assert copied["table"] is not model["table"]
    assert copied["table"].weight is model["table"].weight
    copied.to(torch.bfloat16)
    assert (copied["table"].weight.dtype, model["table"].weight.dtype) == (torch.bfloat16, torch.float32)
    assert copied["table"](torch.tensor([1])).dtype == torch.bfloat16
    assert copied["table"].padding_idx == 0


def test_pickle_refers_to_the_file(file: Path) -> None:
    buffer = io.BytesIO()
    torch.save(MappedEmbedding(file, "wte", padding_idx=2).to(torch.bfloat16), buffer)
    assert len(buffer.getvalue()) < 8192
    buffer.seek(0)
    table = torch.load(buffer, weights_only=False)
    assert table(torch.tensor([1])).tolist() == [[4.0, 5.0, 6.0, 7.0]]
    assert (table.padding_idx, table.dtype) == (2, torch.bfloat16)
    tensors = {"first": torch.full((3, 4), 9.0), "wte": torch.full((3, 4), 5.0)}
    save_file(tensors, file)  # the table is elsewhere in the file now
    buffer.seek(0)
    assert torch.load(buffer, weights_only=False)(torch.tensor([1])).tolist() == [[5.0] * 4]
    file.unlink()
    buffer.seek(0)
    with pytest.raises(MissingFileError):
        torch.load(buffer, weights_only=False)


def test_ids_are_checked(file: Path) -> None:
    with pytest.raises(IdRangeError, match=r"id 11 at \[0, 1\] is outside 0\.\.10"):
        MappedEmbedding(file, "wte")(torch.tensor([[0, 11]]))
    with pytest.raises(DtypeError):
        MappedEmbedding(file, "wte")(torch.tensor([0.5]))


def test_missing_file(tmp_path: Path) -> None:
    for path in (tmp_path / "none.safetensors", tmp_path):
        with pytest.raises(MissingFileError, match=str(path)):
            MappedEmbedding(path)


def test_names(file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"2 tensors with two axes; pass the name of the table: counts, wte"):
        MappedEmbedding(file)
    with pytest.raises(InputError, match=r"no tensor 'wpe'; it has counts, norm, wte"):
        MappedEmbedding(file, "wpe")
    with pytest.raises(ShapeError, match=r"'norm' of model.safetensors has shape \(4,\)"):
        MappedEmbedding(file, "norm")
    with pytest.raises(DtypeError, match=r"'counts' .* I32"):
        MappedEmbedding(file, "counts")
    with pytest.raises(InputError, match="padding_idx 11 is outside"):
        MappedEmbedding(file, "wte", padding_idx=11)
    save_file({"norm": torch.ones(3)}, tmp_path / "flat.safetensors")
    with pytest.raises(InputError, match="no tensor with two axes; pass the name of the table: norm"):
        MappedEmbedding(tmp_path / "flat.safetensors")
    save_file({f"w{i:02}": torch.ones(1, 1) for i in range(20)}, tmp_path / "many.safetensors")
    with pytest.raises(InputError, match="w07, and 12 more"):
        MappedEmbedding(tmp_path / "many.safetensors")
    save_file({"wte": torch.ones(0, 4)}, tmp_path / "empty.safetensors")
    with pytest.raises(ShapeError, match="both sizes at least 1"):
        MappedEmbedding(tmp_path / "empty.safetensors", "wte")
    with pytest.raises(ShapeError, match="both sizes at least 1"):
        MappedEmbedding(tmp_path / "empty.safetensors")


def broken(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ENTRY = {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 32]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x04K\x01.",  # a pickle
        b"hello, I am no safetensors file at all",
        broken({"wte": ENTRY}, b"\0" * 31),  # cut short
        broken({"wte": ENTRY}, b"\0" * 33),  # too long
        broken({"wte": ENTRY}, b"\0" * 32, length=2**62),  # asks for an absurd header
        broken({"wte": {**ENTRY, "shape": [2**40, 2**40]}}, b"\0" * 32),  # lies about its shape
        broken({"wte": {**ENTRY, "shape": [2**63, 2]}}, b"\0" * 32),
        broken({"wte": {**ENTRY, "shape": [-2, -4]}}, b"\0" * 32),
        broken({"wte": {**ENTRY, "data_offsets": [0, 2**40]}}, b"\0" * 32),
        broken({"wte": {**ENTRY, "data_offsets": [32, 0]}}, b"\0" * 32),
        broken({"wte": {**ENTRY, "dtype": "F99"}}, b"\0" * 32),
        broken(b"{not json", b"\0" * 32),
        broken(b"\xff\xfe", b"\0" * 32),
    ],
)
def test_hostile_files_are_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a readable safetensors file"):
        MappedEmbedding(path)


def test_control_valid_header_opens(tmp_path: Path) -> None:
    path = tmp_path / "good.safetensors"
    path.write_bytes(broken({"wte": ENTRY}, b"\0" * 32))
    assert MappedEmbedding(path).num_embeddings == 2
