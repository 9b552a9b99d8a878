"""A learner's tensor compared with the walk: equal, different, or nothing to compare with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import inlayer
from inlayer.learn.comparison import TEXT, compare
from inlayer.tensors import to_tensor


@pytest.fixture(scope="module")
def rows() -> Tensor:
    model = inlayer.load("default")
    return to_tensor(model.table.rows([model.tokenizer.encode(TEXT)])).float()


def test_rows_match_the_walk(rows: Tensor) -> None:
    for own in (rows, rows[0], rows.requires_grad_()):
        found = compare(own, 5)
        assert found.message == "It has the same numbers as the rows of the walk, bit for bit."
    assert compare(rows, 7).message == "It has the same numbers as the hidden states of the walk, bit for bit."


def test_a_batch_is_compared_part_by_part(rows: Tensor) -> None:
    found = compare(torch.cat((torch.zeros_like(rows), rows)), 5)
    assert found.message == "Its batch entry 1 has the same numbers as the rows of the walk, bit for bit."


def test_rounding_differs_from_other_numbers(rows: Tensor) -> None:
    assert compare(rows * (1 + 1e-6), 5).message.endswith("up to rounding.")
    found = compare(rows + 0.01, 5)
    assert found.message == "It has the shape of the rows of the walk, but different numbers."


def test_ids_and_gradients() -> None:
    ids = torch.tensor(inlayer.load("default").tokenizer.encode(TEXT))
    assert compare(ids, 3).message == "It has the same numbers as the ids of the walk, bit for bit."
    padded = torch.stack((ids, torch.zeros_like(ids)))
    assert compare(padded, 3).message == "Its row 0 has the same numbers as the ids of the walk, bit for bit."
    trace = inlayer.walk(TEXT, dims=128)
    gradients = torch.tensor([row.lookup for row in trace.backward.rows])
    assert compare(gradients, 8).message.startswith("It has the same numbers as the gradients through the lookup")


@pytest.mark.parametrize("own", [torch.zeros(3), torch.tensor(2.0), torch.zeros(0, 4), torch.zeros(2, 2, 2, 2).bool()])
def test_shapes_that_the_walk_does_not_have(own: Tensor) -> None:
    found = compare(own, 6)
    assert found.trace.shape == (1, 4, 128)
    assert "no tensor of this shape" in found.message
