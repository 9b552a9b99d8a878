"""Learned positions: rows, range checks, initialization."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from inlayer import Embeddings
from inlayer.errors import DtypeError, InputError, PositionRangeError
from inlayer.positions import LearnedPositions


def test_rows_by_position() -> None:
    learned = LearnedPositions(8, 4)
    ids = torch.tensor([[0, 7], [3, 3]])
    assert torch.equal(learned(ids), learned.weight[ids])
    assert learned.weight.shape == (8, 4)


@pytest.mark.parametrize("bad", [8, 100, -1])
def test_position_outside_the_table_is_reported_with_the_range(bad: int) -> None:
    with pytest.raises(PositionRangeError, match=rf"position {bad} is outside 0..7, because block_size is 8"):
        LearnedPositions(8, 4)(torch.tensor([0, bad]))
    for builtin in (IndexError, ValueError):
        with pytest.raises(builtin):
            LearnedPositions(8, 4)(torch.tensor([bad]))


def test_offset_skips_the_first_rows() -> None:
    learned = LearnedPositions(8, 4, offset=2)
    assert learned.weight.shape == (10, 4)
    assert torch.equal(learned(torch.tensor([-2, -1, 0, 7])), learned.weight[[0, 1, 2, 9]])
    with pytest.raises(PositionRangeError, match=r"position 8 is outside -2..7"):
        learned(torch.tensor([8]))
    with pytest.raises(PositionRangeError, match="position -3"):
        learned(torch.tensor([-3]))


def test_seed_determines_the_initial_rows() -> None:
    weights = [LearnedPositions(64, 32, seed=seed).weight.detach() for seed in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert abs(float(weights[0].std()) - 0.02) < 2e-3
    assert LearnedPositions(8, 4, seed=1, device="meta").weight.is_meta


def test_seed_does_not_change_the_global_random_state() -> None:
    torch.manual_seed(0)
    LearnedPositions(8, 4, seed=1)
    ours = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(ours, torch.rand(1))


def test_reset_with_a_seed_gives_the_same_rows() -> None:
    learned = LearnedPositions(8, 4, seed=1, padding_idx=1)
    initial = learned.weight.detach().clone()
    with torch.no_grad():
        learned.weight.add_(1)
    learned.reset_parameters()
    assert torch.equal(learned.weight, initial)


def test_padding_row_is_zero_and_gets_no_gradient() -> None:
    learned = LearnedPositions(8, 4, padding_idx=1)
    assert not learned.weight[1].any()
    learned(torch.tensor([1, 2])).sum().backward()
    assert learned.weight.grad is not None
    assert not learned.weight.grad[1].any()
    assert learned.weight.grad[2].all()


@pytest.mark.parametrize("seed", [None, 3])
def test_copies(seed: int | None) -> None:
    learned = LearnedPositions(8, 4, seed=seed, offset=1)
    ids = torch.arange(8)
    for copied in (copy.deepcopy(learned), pickle.loads(pickle.dumps(learned))):
        assert torch.equal(copied(ids), learned(ids))
        assert copied.weight is not learned.weight
        with pytest.raises(PositionRangeError):
            copied(torch.tensor([8]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
def test_small_integer_positions_give_the_values_of_int64(dtype: torch.dtype) -> None:
    """127 plus the offset does not fit in int8."""
    learned, ids = LearnedPositions(128, 4, offset=2), torch.tensor([[0, 127]])
    assert torch.equal(learned(ids.to(dtype)), learned(ids))


def test_empty_and_meta() -> None:
    assert LearnedPositions(8, 4)(torch.zeros(2, 0, dtype=torch.int64)).shape == (2, 0, 4)
    assert LearnedPositions(8, 4, device="meta")(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 4)


@pytest.mark.parametrize("arguments", [(0, 4), (8, 0), (-1, 4)])
def test_sizes_must_be_at_least_1(arguments: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        LearnedPositions(*arguments)


def test_other_errors() -> None:
    with pytest.raises(InputError, match="offset -1"):
        LearnedPositions(8, 4, offset=-1)
    with pytest.raises(InputError, match="padding_idx 8 is outside the 8 rows"):
        LearnedPositions(8, 4, padding_idx=8)
    with pytest.raises(DtypeError, match="position_ids"):
        LearnedPositions(8, 4)(torch.tensor([0.5]))
    with pytest.raises(InputError, match="needs block_size"):
        Embeddings(9, 4, positions="learned")
    with pytest.raises(InputError, match="positions of width 5 cannot be added to rows of width 4"):
        Embeddings(9, 4, positions=LearnedPositions(8, 5))
