"""Ragged ids against plain lists."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from inlayer import Embeddings, mean_pool
from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError
from inlayer.ragged import Ragged, concatenate_batches, select_texts, slice_texts, with_special_tokens
from inlayer.tensors import check_ids

ROWS = st.lists(st.lists(st.integers(0, 2**40), max_size=6), max_size=7)


def pad_one_by_one(rows, pad_id, side):  # slow, obvious
    width = max(map(len, rows), default=0)
    ids, mask = [], []
    for row in rows:
        empty = [pad_id] * (width - len(row))
        ids.append(row + empty if side == "right" else empty + row)
        real = [True] * len(row)
        gap = [False] * len(empty)
        mask.append(real + gap if side == "right" else gap + real)
    return (
        torch.tensor(ids, dtype=torch.int64).reshape(len(rows), width),
        torch.tensor(mask, dtype=torch.bool).reshape(len(rows), width),
    )


@given(ROWS)
def test_rows_are_returned_unchanged(rows):
    batch = Ragged.from_lists(rows)
    assert [row.tolist() for row in batch] == rows
    assert len(batch) == len(rows)
    assert batch.flat.tolist() == [value for row in rows for value in row]
    assert batch.flat.dtype == batch.offsets.dtype == np.int64
    assert batch.counts.tolist() == [len(row) for row in rows]


@given(ROWS, st.integers(0, 9), st.sampled_from(["left", "right"]))
def test_padded_matches_a_plain_loop(rows, pad_id, side):
    ours, theirs = Ragged.from_lists(rows).padded(pad_id, side), pad_one_by_one(rows, pad_id, side)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.dtype == other.dtype
        assert mine.shape == other.shape
        assert torch.equal(mine, other)


def test_control_padding_reference_can_fail():
    rows = [[1, 2], [3]]
    assert not torch.equal(Ragged.from_lists(rows).padded(0, "left")[0], pad_one_by_one(rows, 0, "right")[0])


def test_padded_shapes_and_sides():
    ids, mask = Ragged.from_lists([[5, 6], [], [7]]).padded(0, "left")
    assert ids.tolist() == [[5, 6], [0, 0], [0, 7]]
    assert mask.tolist() == [[True, True], [False, False], [False, True]]
    for batch, shape in ((Ragged.from_lists([]), (0, 0)), (Ragged.from_lists([[], []]), (2, 0))):
        ids, mask = batch.padded(0)
        assert tuple(ids.shape) == tuple(mask.shape) == shape
        assert (ids.dtype, mask.dtype) == (torch.int64, torch.bool)


@given(ROWS, st.lists(st.integers(0, 9), max_size=2), st.lists(st.integers(0, 9), max_size=2))
def test_with_special_tokens(rows, prefix, suffix):
    ours = with_special_tokens(Ragged.from_lists(rows), prefix, suffix)
    assert ours == Ragged.from_lists([prefix + row + suffix for row in rows])


@given(ROWS, st.integers(0, 7))
def test_parts_concatenate_to_the_batch(rows, cut):
    batch, cut = Ragged.from_lists(rows), min(cut, len(rows))
    parts = [slice_texts(batch, 0, cut), slice_texts(batch, cut, len(rows))]
    assert parts == [Ragged.from_lists(rows[:cut]), Ragged.from_lists(rows[cut:])]
    assert concatenate_batches(parts) == batch
    assert np.shares_memory(parts[0].flat, batch.flat) == (parts[0].flat.size > 0)


@given(ROWS, st.data())
def test_texts_in_another_order(rows, data):
    order = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    ours = select_texts(Ragged.from_lists(rows), np.array(order, np.int64))
    assert ours == Ragged.from_lists([rows[index] for index in order])


def test_row_is_a_view():
    batch = Ragged.from_lists([[1, 2], [3]])
    assert np.shares_memory(batch[0], batch.flat)
    assert batch[-1].tolist() == [3]
    with pytest.raises(IndexError, match="outside a batch of 2"):
        batch[2]


def test_int64_is_not_copied():
    flat = np.arange(3)
    assert np.shares_memory(Ragged(flat, [0, 3]).flat, flat)


@pytest.mark.parametrize(
    ("flat", "offsets", "error", "match"),
    [
        ([1, 2], [], ShapeError, "at least"),
        ([1, 2], [0, 1], InputError, "0 to len"),
        ([1, 2], [1, 2], InputError, "go from 1"),
        ([1, 2], [0, 2, 1, 2], InputError, "at text 1"),
        ([1.5], [0, 1], DtypeError, "float64"),
        ([True], [0, 1], DtypeError, "bool"),
        ([[1, 2]], [0, 1], ShapeError, "2 axes"),
        ([[1], [1, 2]], [0, 1], ShapeError, "rows of different lengths"),
        ([10**30], [0, 1], IdRangeError, "position 0"),
        ([2**63], [0, 1], IdRangeError, "position 0"),
        (["a"], [0, 1], DtypeError, "ids must be integers"),
    ],
)
def test_invalid_arrays_are_an_error(flat, offsets, error, match):
    with pytest.raises(error, match=match):
        Ragged(flat, offsets)


def test_invalid_padding_is_an_error():
    batch = Ragged.from_lists([[1]])
    with pytest.raises(InputError, match="middle"):
        batch.padded(0, "middle")
    with pytest.raises(IdRangeError, match="-1"):
        batch.padded(-1)


def test_missing_padding_token_is_an_error():
    """`tokenizer.pad_id` can be None. In its own process, because pytest's type checks would fail first."""
    code = """
from inlayer.errors import DtypeError
from inlayer.ragged import Ragged
try:
    Ragged.from_lists([[1]]).padded(None)
except DtypeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        "pad_id is None; it must be the id of a row. If the tokenizer has no padding token, choose an id" in done.stdout
    )


def test_encoding_does_not_import_torch():
    """Tokenizer libraries are only imported when a file is opened."""
    code = (
        "import sys, inlayer.tokenizers, inlayer.ragged; inlayer.tokenizers.ByteTokenizer().encode('a');"
        "heavy = ('torch', 'transformers', 'tokenizers', 'tiktoken', 'sentencepiece', 'gigatoken');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_layer_names_the_ways_to_use_ragged_ids():
    ragged = Ragged.from_lists([[1, 2], [], [3]])
    with pytest.raises(DtypeError, match=r"\.padded\(pad_id\), or, without padding, (mean_pool\(.*\))$") as error:
        check_ids(ragged)  # as a layer does first
    token_embedding = Embeddings(10, 4, 8).token_embedding
    code = str(error.value).rpartition("padding, ")[2]
    names = {"mean_pool": mean_pool, "token_embedding": token_embedding, "torch": torch, "ragged": ragged}
    assert eval(code, names).shape == (3, 4)
