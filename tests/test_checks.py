"""Argument checks without the type checks that pytest adds, as for a user."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable

import pytest
import torch

import inlayer
from inlayer.errors import DtypeError
from inlayer.tables import look_up

CALLS = """
import math, numpy, torch, inlayer
from inlayer import Embeddings, Head
from inlayer.errors import InlayerError
from inlayer.positions import LearnedPositions
from inlayer.tables import Table
for number, call in enumerate((
    lambda: Head(4, 10, padding_idx=99), lambda: Head(4, 10, padding_idx="x"), lambda: Head(4, 10, padding_idx=True),
    lambda: Head(4, 10, logit_scale="x"), lambda: Head(4, 10, soft_cap="x"),
    lambda: Head(4, True), lambda: Head(4, 1.5),
    lambda: Head(4, 10).loss(torch.zeros(1, 4), torch.tensor([1]), z_loss="x"),
    lambda: Table(10, 4, padding_idx=True), lambda: Table(10, 4, padding_idx=1.0), lambda: Table(10, "x"),
    lambda: Table(10, 4, init_std="x"), lambda: Table(10, 4, init_std=None),
    lambda: LearnedPositions(10, 4, init_std="x"),
    lambda: Embeddings(10, 4, init_std="x"), lambda: Embeddings(10, 4, padding_idx=True),
    lambda: Embeddings(10, 4, scale="x"), lambda: Embeddings(10, 4, dropout="x"),
    lambda: Embeddings(10, 4, scale=10**400),
    lambda: Embeddings(10, 4, norm_eps="x"),
)):
    try:
        call()
    except InlayerError as error:
        assert "\\n" not in str(error)
    else:
        raise AssertionError(number)
assert Head(4, 10, padding_idx=-1).padding_idx == 9  # as Table and nn.Embedding count
for n in (numpy.int64, numpy.uint8):  # of which some operations wrap around
    layer, head = Embeddings(n(9), n(4), n(8), padding_idx=n(1), n_token_types=n(2), seed=n(3)), Head(n(4), n(9))
    layer.tie(head)
    assert layer(torch.tensor([[0, 8]])).shape == (1, 2, 4)
    assert type(layer.padding_idx) is int and head._padding_row() == 1  # a row without gradient
    assert len(LearnedPositions(n(255), n(4), offset=n(2)).weight) == 257
    assert Embeddings(9, 8, positions="rotary", head_dim=n(4)).rotary(torch.arange(3))[0].shape == (3, 4)
    assert Table(300, 4, padding_idx=n(5)).padding_idx == Head(4, 300, padding_idx=n(5)).padding_idx == 5
"""

IMPOSSIBLE = {
    "positions=3": "positions is an int",
    "positions='up'": "positions is 'up'",
    "positions='learned', head_dim=4": "head_dim applies only to",
    "positions='rotary', head_dim=0": "head_dim is 0",
    "block_size=4, position_offset='2'": "offset '2'; rows",
    "positions='rotary', block_size=4": "block_size 4 is for learned",
    "row_width=2, projection_at='foo'": "projection_at is 'foo'",
    "row_width=2": "pass both or neither",
    "position_id_rule='ids'": "must be a PositionIdRule",
    "scale=float('inf')": "scale is inf",
    "input_multiplier=float('nan')": "input_multiplier is nan",
    "norm_eps=-1.0": "norm_eps is -1.0",
    "n_token_types=-1": "n_token_types is -1",
    "dropout=1.5": "dropout is 1.5",
    "dtype='float32'": "dtype is 'float32'",
    "seed=2**80": "seed is",
    "seed=-1": "seed is -1",
    "init='warm'": "init is 'warm'",
}


def test_invalid_arguments_are_reported_without_type_checks() -> None:
    code = CALLS + "".join(
        f"try: Embeddings(10, 8, {settings}); print('made')\nexcept InlayerError as e: print(e)\n"
        for settings in IMPOSSIBLE
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for line, says in zip(done.stdout.splitlines(), IMPOSSIBLE.values(), strict=True):
        assert says in line


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_tensors_are_a_typed_error(layout: torch.layout) -> None:
    ids, model = torch.tensor([[1, 0, 3]]), inlayer.load("default")
    layer, head = inlayer.Embeddings(10, 8, 4), inlayer.Head(8, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CSR is in beta
        sparse = ids.to_sparse(layout=layout)
    calls: list[Callable[[], object]] = [
        lambda: layer(sparse), lambda: layer(ids, position_ids=sparse), lambda: look_up(sparse, torch.zeros(10, 8)),
        lambda: model.embeddings(sparse), lambda: model.table.rows(sparse), lambda: model.embeddings.rotary(sparse),
        lambda: head.loss(torch.zeros(1, 3, 8), sparse), lambda: inlayer.mean_pool(torch.zeros(1, 3, 8), sparse),
        lambda: inlayer.ByteTokenizer().decode(sparse),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(DtypeError, match=r"sparse|Sparse"):
            call()


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_a_typed_error(layout: torch.layout) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are a prototype
        nested = torch.nested.nested_tensor([torch.tensor([1, 0]), torch.tensor([3])], layout=layout)
    for call in (inlayer.Embeddings(10, 8), inlayer.load("default").table.rows, inlayer.ByteTokenizer().decode):
        with pytest.raises(DtypeError, match=r"nested|numpy array"):
            call(nested)
