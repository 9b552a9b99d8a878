"""A learner's tensor beside the walk: the same numbers, other ones, or nothing to compare with."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import inlayer
from inlayer.learn.comparison import TEXT, lay_beside
from inlayer.tensors import to_tensor


@pytest.fixture(scope="module")
def rows() -> Tensor:
    model = inlayer.load("default")
    return to_tensor(model.table.rows([model.tokenizer.encode(TEXT)])).float()


def test_rows_are_those_of_the_walk(rows: Tensor) -> None:
    for own in (rows, rows[0], rows.requires_grad_()):
        found = lay_beside(own, 5)
        assert (found.same, found.step) == (True, 5)
        assert found.says == "They are the same numbers as the rows of the walk, bit for bit."
    assert lay_beside(rows, 7).says == "They are the same numbers as the hidden states of the walk, bit for bit."


def test_a_batch_is_compared_by_its_parts(rows: Tensor) -> None:
    found = lay_beside(torch.cat((torch.zeros_like(rows), rows)), 5)
    assert (found.same, found.says) == (True, "Its batch entry 1 is the same as the rows of the walk, bit for bit.")


def test_rounding_is_told_from_other_numbers(rows: Tensor) -> None:
    assert lay_beside(rows * (1 + 1e-6), 5).says.endswith("up to rounding.")
    found = lay_beside(rows + 0.01, 5)
    assert (found.same, found.says) == (False, "They are of the size of the rows of the walk, and other numbers.")


def test_ids_and_gradients() -> None:
    ids = torch.tensor(inlayer.load("default").tokenizer.encode(TEXT))
    assert lay_beside(ids, 3).says == "They are the same numbers as the ids of the walk, bit for bit."
    padded = torch.stack((ids, torch.zeros_like(ids)))
    assert lay_beside(padded, 3).says == "Its row 0 is the same as the ids of the walk, bit for bit."
    trace = inlayer.walk(TEXT, dims=128)
    gradients = torch.tensor([row.lookup for row in trace.backward.rows])
    assert lay_beside(gradients, 8).says.startswith("They are the same numbers as the gradients by way of the lookup")


@pytest.mark.parametrize("own", [torch.zeros(3), torch.tensor(2.0), torch.zeros(0, 4), torch.zeros(2, 2, 2, 2).bool()])
def test_what_the_walk_has_not(own: Tensor) -> None:
    found = lay_beside(own, 6)
    assert (found.same, found.trace.shape) == (None, (1, 4, 128))
    assert "no tensor of this size" in found.says
