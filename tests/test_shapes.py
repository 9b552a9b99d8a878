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
import math, torch, inlayer
from inlayer import Embeddings, Head
from inlayer.errors import InlayerError
from inlayer.positions import LearnedPositions
from inlayer.tables import Table
for number, call in enumerate((
    lambda: Head(4, 10, padding_idx=99), lambda: Head(4, 10, padding_idx="x"), lambda: Head(4, 10, padding_idx=True),
    lambda: Head(4, 10, scale="x"), lambda: Head(4, 10, soft_cap="x"), lambda: Head(4, True), lambda: Head(4, 1.5),
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
"""


def test_invalid_arguments_are_reported_without_type_checks() -> None:
    done = subprocess.run([sys.executable, "-c", CALLS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
