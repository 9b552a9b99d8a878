"""Quantized rows are bit-identical to the gguf package's dequantization of the whole tensor."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from pathlib import Path

import numpy as np
import pytest

from inlayer.errors import DtypeError, MissingExtraError
from inlayer.formats.dequantization import GGML_TYPES, PLAIN, make_dequantizer, row_bytes
from inlayer.formats.row_reader import FileRows
from inlayer.tables import StoredTable

gguf = pytest.importorskip("gguf")
from gguf import quants  # noqa: E402

ROWS, WIDTH = 37, 512
QUANTIZED = sorted(kind for kind in GGML_TYPES if kind[0] in "QITMN" and kind not in PLAIN)
NOT_DECODED = {"Q8_1", "Q8_K", "Q1_0", "I8", "I16", "I32", "I64"}


def raw_rows(kind: str, seed: int = 3) -> np.ndarray:
    """Random bytes: any bit pattern of scales and values, including infinities and NaN."""
    return np.random.default_rng(seed).integers(0, 256, (ROWS, row_bytes(kind, WIDTH)), np.uint8)


def stored(tmp_path: Path, kind: str, raw: np.ndarray) -> StoredTable:
    (tmp_path / "rows").write_bytes(b"before" + raw.tobytes())
    source = FileRows(tmp_path / "rows", 6, ROWS, row_bytes(kind, WIDTH))
    return StoredTable(
        source, WIDTH, PLAIN.get(kind, np.dtype(np.float32)), decode_rows=make_dequantizer(kind, WIDTH), name=kind
    )


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def test_types_match_the_package():
    theirs = {kind.name: (int(kind), *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    shared = GGML_TYPES.keys() & theirs.keys()  # versions of the package differ
    assert {name: GGML_TYPES[name] for name in shared} == {name: theirs[name] for name in shared}
    assert len(shared) > 30


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # random bytes contain extreme scales
@pytest.mark.parametrize("kind", [kind for kind in QUANTIZED if kind not in NOT_DECODED])
def test_rows_match_the_whole_tensor(tmp_path: Path, kind: str):
    raw = raw_rows(kind)
    table = stored(tmp_path, kind, raw)
    theirs = quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    ids = np.array([[5, 0, ROWS - 1], [5, 7, 5]])
    assert same_bits(table.rows(ids), theirs[ids])
    assert same_bits(table.weight, theirs)
    raw[5, 3] ^= 0x10  # control: one bit of one row
    assert not same_bits(stored(tmp_path, kind, raw).rows(ids), theirs[ids])


@pytest.mark.parametrize("kind", sorted(PLAIN))
def test_plain_rows_keep_their_dtype(tmp_path: Path, kind: str):
    raw = raw_rows(kind)
    table = stored(tmp_path, kind, raw)
    theirs = raw.view(PLAIN[kind])
    assert make_dequantizer(kind, WIDTH) is None
    assert same_bits(table.rows(range(ROWS)), theirs)


def test_decoding_in_blocks_gives_the_same_rows(monkeypatch: pytest.MonkeyPatch):
    raw = raw_rows("Q8_0")
    whole = make_dequantizer("Q8_0", WIDTH)(raw)
    monkeypatch.setattr("inlayer.formats.dequantization.CHUNK_VALUES", 3 * WIDTH)
    assert same_bits(make_dequantizer("Q8_0", WIDTH)(raw), whole)


def test_quantized_table_can_be_copied_and_pickled(tmp_path: Path):
    table = stored(tmp_path, "Q4_K", raw_rows("Q4_K"))
    for copied in (copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert same_bits(copied.rows([1, 2, 3]), table.rows([1, 2, 3]))


@pytest.mark.parametrize("kind", sorted(NOT_DECODED))
def test_integer_types_are_an_error(kind: str):
    with pytest.raises(DtypeError, match=f"type {kind} "):
        make_dequantizer(kind, WIDTH)


def test_missing_gguf_package_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert make_dequantizer("F16", WIDTH) is None  # plain rows do not need the package
    with pytest.raises(MissingExtraError, match=r"pip install 'inlayer\[gguf\]'"):
        make_dequantizer("Q8_0", WIDTH)
