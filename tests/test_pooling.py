"""Pooling against a plain loop over texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from inlayer import Ragged
from inlayer.errors import DtypeError, InputError, ShapeError
from inlayer.pooling import first_token_pool, last_token_pool, mean_pool
from inlayer.ragged import ragged_from_counts

MASK = torch.tensor(
    [
        [1, 1, 1, 0, 0],  # padded on the right
        [0, 0, 1, 1, 1],  # on the left
        [1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0],  # nothing but padding
        [0, 1, 0, 1, 0],  # with a hole
    ]
)
POOLS = {"mean": mean_pool, "last": last_token_pool, "first": first_token_pool}
Pool = Callable[..., Tensor]


def plain(kind: str, hidden: Tensor, mask: Tensor) -> Tensor:
    """The reference: one text at a time, real tokens only."""
    vectors = []
    for states, real in zip(hidden, mask.bool(), strict=True):
        tokens = [states[t] for t in range(len(real)) if real[t]]
        if not tokens:
            vectors.append(torch.zeros_like(hidden[0, 0]))
        elif kind == "mean":
            vectors.append((torch.stack(tokens).float().sum(0) / len(tokens)).to(hidden.dtype))
        else:
            vectors.append(tokens[-1 if kind == "last" else 0])
    return torch.stack(vectors)


@pytest.mark.parametrize(
    "mask_dtype", [torch.bool, torch.int64, torch.int32, torch.uint8, torch.float32, torch.bfloat16]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", POOLS)
def test_matches_the_plain_loop(kind: str, dtype: torch.dtype, mask_dtype: torch.dtype) -> None:
    hidden = torch.randn(5, 5, 4).to(dtype)
    ours, theirs = POOLS[kind](hidden, MASK.to(mask_dtype)), plain(kind, hidden, MASK)
    assert ours.dtype == dtype
    if kind == "mean" and dtype == torch.float32:
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    else:
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert not torch.allclose(POOLS[kind](hidden), theirs)  # control: without the mask


@pytest.mark.parametrize("kind", POOLS)
def test_without_a_mask_all_tokens_are_real(kind: str) -> None:
    hidden = torch.randn(3, 5, 4)
    theirs = {"mean": hidden.mean(1), "last": hidden[:, -1], "first": hidden[:, 0]}[kind]
    torch.testing.assert_close(POOLS[kind](hidden), theirs)


@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", POOLS)
def test_values_at_padding_do_not_matter(kind: str, poison: float) -> None:
    hidden = torch.randn(5, 5, 4)
    clean = POOLS[kind](hidden, MASK)
    poisoned = hidden.masked_fill(MASK.unsqueeze(-1) == 0, poison).requires_grad_()
    ours = POOLS[kind](poisoned, MASK)
    torch.testing.assert_close(ours, clean, rtol=0, atol=0)
    ours.sum().backward()
    assert bool(poisoned.grad.isfinite().all())
    assert bool((poisoned.grad[MASK == 0] == 0).all())


@pytest.mark.parametrize("kind", POOLS)
def test_gradient_matches_the_plain_loop(kind: str) -> None:
    ours, theirs = (torch.arange(100.0, dtype=torch.float64).view(5, 5, 4).requires_grad_() for _ in range(2))
    (POOLS[kind](ours, MASK) ** 2).sum().backward()
    (plain(kind, theirs, MASK).double() ** 2).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-6)
    assert bool((ours.grad != 0).any())


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("shape", [(0, 5, 4), (3, 0, 4), (0, 0, 4)])
def test_empty_batches_and_empty_texts(kind: str, shape: tuple[int, int, int]) -> None:
    ours = POOLS[kind](torch.randn(shape), torch.ones(shape[:2]))
    assert torch.equal(ours, torch.zeros(shape[0], 4))


def test_half_types_are_summed_in_float32() -> None:
    hidden = torch.full((1, 4096, 1), 100.0).half()  # the sum is past float16
    assert mean_pool(hidden).item() == 100.0
    ones = torch.ones(1, 1000, 1).bfloat16()  # a bfloat16 sum stops counting at 256
    assert mean_pool(ones).item() == 1.0


@pytest.mark.parametrize("pool", POOLS.values())
def test_wrong_arguments(pool: Pool) -> None:
    hidden = torch.randn(2, 3, 4)
    with pytest.raises(ShapeError, match=r"mask has shape \(3, 2\), but hidden has shape \(2, 3, 4\)"):
        pool(hidden, torch.ones(3, 2))
    with pytest.raises(ShapeError, match=r"expected 3 axes: \(batch, tokens, width\)"):
        pool(torch.randn(2, 3), torch.ones(2, 3))
    with pytest.raises(DtypeError, match="int64"):
        pool(torch.ones(2, 3, 4, dtype=torch.int64), torch.ones(2, 3))
    with pytest.raises(DtypeError, match="list"):
        pool(hidden, [[1, 1, 1], [1, 1, 1]])
    for bad in (2.0, -1.0, 0.5, float("nan"), float("-inf")):
        with pytest.raises(InputError, match="other than 0 and 1"):
            pool(hidden, torch.tensor([[1, 1, 1], [1, 1, bad]]))


@pytest.mark.parametrize("kind", POOLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ragged_equals_padded(kind: str, dtype: torch.dtype) -> None:
    ids = Ragged.from_lists([[1, 2, 3], [], [4], [5, 6], []])
    flat = torch.randn(6, 4).to(dtype).requires_grad_()
    padded, mask = ids.padded(0)
    hidden = torch.zeros(*padded.shape, 4, dtype=dtype)
    hidden[mask] = flat.detach()
    pooled = POOLS[kind](flat, ids)
    torch.testing.assert_close(pooled, POOLS[kind](hidden, mask))
    pooled.sum().backward()
    assert bool((flat.grad.sum(0) != 0).all())
    assert torch.equal(POOLS[kind](flat[:0], Ragged([], [0, 0])), torch.zeros(1, 4, dtype=dtype))
    assert POOLS[kind](flat[:0], Ragged([], [0])).shape == (0, 4)


def test_ragged_with_one_long_text_needs_no_padding() -> None:
    """Padded, these 51,000 ids would be 501 x 50,000."""
    ids = ragged_from_counts(torch.arange(51_000) % 97, np.array([2] * 500 + [50_000]))
    rows = torch.randn(97, 16)
    pooled = mean_pool(rows[torch.from_numpy(ids.flat)], ids)
    expected = torch.stack([rows[torch.from_numpy(text)].double().mean(0) for text in ids])
    torch.testing.assert_close(pooled.double(), expected, atol=1e-5, rtol=0)


def test_ragged_needs_one_hidden_state_per_id() -> None:
    with pytest.raises(ShapeError, match=r"\(5, 4\), but the Ragged has 6 ids; pass one hidden state per id"):
        mean_pool(torch.zeros(5, 4), Ragged.from_lists([[1, 2, 3, 4, 5, 6]]))
    with pytest.raises(ShapeError, match=r"expected 2 axes: \(tokens, width\)"):
        mean_pool(torch.zeros(1, 6, 4), Ragged.from_lists([[1, 2, 3, 4, 5, 6]]))


def test_mean_can_exclude_special_tokens() -> None:
    ids = Ragged.from_lists([[1, 5, 6, 2], [], [1, 2], [1, 7, 1, 2], [5]])
    hidden = torch.randn(ids.flat.size, 4)
    ours = mean_pool(hidden, ids, exclude=frozenset({1, 2}))
    zeros = torch.zeros(4)
    theirs = torch.stack([hidden[1:3].mean(0), zeros, zeros, hidden[7], hidden[10]])
    torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(mean_pool(hidden, ids), theirs)
    with pytest.raises(InputError, match="exclude works only with a Ragged"):
        mean_pool(torch.randn(1, 2, 4), torch.ones(1, 2), exclude={1})


@pytest.mark.parametrize("kind", [list, set, np.array, torch.tensor])
def test_ids_to_exclude_in_any_collection(kind: Any) -> None:
    ids, hidden = Ragged.from_lists([[1, 5, 2], [1]]), torch.arange(8.0).view(4, 2)
    assert torch.equal(mean_pool(hidden, ids, exclude=kind([1, 2])), torch.tensor([[2.0, 3.0], [0.0, 0.0]]))


@pytest.mark.parametrize("exclude", [1, None, ["a"], [1.5]])
def test_exclude_that_is_no_collection_of_ids(exclude: Any) -> None:
    with pytest.raises(InputError, match="pass a collection of ids"):
        mean_pool(torch.zeros(1, 2), Ragged.from_lists([[1]]), exclude=exclude)
