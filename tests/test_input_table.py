"""`ids_of` and `merge`: the inverse of the lookup, and vectors in the place of placeholder tokens."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import torch
from torch import Tensor

import inlayer
from inlayer.embeddings import Embeddings
from inlayer.errors import DtypeError, InputError, ShapeError


def layer(dtype: torch.dtype = torch.float32, **settings: object) -> Embeddings:
    return Embeddings(50, 6, seed=0, dtype=dtype, **settings).eval()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("scale", [1.0, 6**0.5])
def test_ids_of_inverts_the_lookup(dtype: torch.dtype, scale: float) -> None:
    one = layer(dtype, scale=scale)
    ids = torch.randint(0, 50, (4, 9), generator=torch.Generator().manual_seed(0))
    vectors = one(ids)
    assert torch.equal(one.ids_of(vectors), ids)
    assert one.ids_of(vectors[2, 3]) == ids[2, 3]  # one vector
    assert one.ids_of(vectors[:0]).shape == (0, 9)


def test_ids_of_a_checkpoint_and_normalized_rows() -> None:
    ids = torch.tensor([[1, 40, 6143]])
    stored = inlayer.load("default").embeddings
    assert torch.equal(stored.ids_of(stored(ids)), ids)
    inkling = layer(norm="rmsnorm", norm_eps=1e-6, norm_at="rows")
    assert torch.equal(inkling.ids_of(inkling(torch.tensor([7, 8]))), torch.tensor([7, 8]))


def test_equal_rows_zeros_and_nan() -> None:
    one = layer(padding_idx=3)
    with torch.no_grad():
        one.token_embedding.weight[20] = one.token_embedding.weight[9]
        one.token_embedding.weight[30] = torch.nan
    assert one.ids_of(one(torch.tensor([20, 9, 3]))).tolist() == [9, 9, 3]
    assert one.ids_of(torch.full((6,), -0.0)) == 3
    with pytest.raises(InputError, match=r"the vector at 1 is not a row of the table"):
        one.ids_of(torch.stack([one(torch.tensor([5]))[0], torch.rand(6)]))
    with pytest.raises(InputError, match=r"the vector at \(1, 0\) \(and 1 more\) is not"):
        one.ids_of(torch.stack([one(torch.tensor([5, 6])), torch.rand(2, 6)]))
    with pytest.raises(DtypeError, match=r"vectors have dtype torch.bfloat16; rows of this table are torch.float32"):
        one.ids_of(torch.rand(2, 6, dtype=torch.bfloat16))
    with pytest.raises(ShapeError, match="last axis must have width 6"):
        one.ids_of(torch.rand(2, 5))


def test_ids_of_follows_changes_of_the_rows() -> None:
    one = layer()
    vectors = one(torch.tensor([5, 6]))
    assert one.ids_of(vectors).tolist() == [5, 6]
    with torch.no_grad():
        one.token_embedding.weight[5] = 1.0
    with pytest.raises(InputError, match="the vector at 0"):
        one.ids_of(vectors)
    one.token_embedding.weight.data[7] = 2.0  # torch does not count this as a change
    assert one.ids_of(torch.full((6,), 2.0)) == 7


def test_a_layer_can_be_copied_and_pickled_after_ids_of() -> None:
    one = layer()
    vectors = one(torch.tensor([5, 6]))
    one.ids_of(vectors)
    for other in (copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert other.ids_of(vectors).tolist() == [5, 6]


def merge_one_by_one(one: Embeddings, ids: Tensor, features: list[Tensor], placeholder: int) -> Tensor:
    waiting = [vector for part in features for vector in part]
    found = [
        waiting.pop(0) if token == placeholder else one(torch.tensor([token]))[0] for token in ids.flatten().tolist()
    ]
    return torch.stack(found).view(*ids.shape, 6)


@pytest.mark.parametrize("placeholder", [7, 99])  # the second has no row
def test_merge_equals_a_plain_loop(placeholder: int) -> None:
    one = layer(scale=2.0)
    ids = torch.tensor([[1, placeholder, placeholder, 2], [placeholder, 3, 4, 5]])
    features = [torch.randn(2, 6), torch.randn(1, 6)]
    expected = merge_one_by_one(one, ids, features, placeholder)
    assert torch.equal(one.merge(ids, features, placeholder), expected)
    assert torch.equal(one.merge(ids, torch.cat(features), placeholder), expected)
    assert torch.equal(one.merge(ids[1], features[1], placeholder), expected[1])
    assert not torch.equal(one.merge(ids, features[::-1], placeholder), expected)
    assert torch.equal(one(inputs_embeds=one.merge(ids, features, placeholder)), expected)
    assert torch.equal(one.merge(torch.tensor([1, 2]), [], placeholder), one(torch.tensor([1, 2])))


def test_merge_sends_gradients_to_both() -> None:
    one, features = layer(), torch.randn(1, 6, requires_grad=True)
    one.merge(torch.tensor([4, 7]), features, 7).sum().backward()
    assert torch.equal(features.grad, torch.ones(1, 6))
    gradient = one.token_embedding.weight.grad
    assert gradient is not None
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == [4]


def test_merge_names_what_does_not_match() -> None:
    one, ids = layer(), torch.tensor([[1, 7, 2], [7, 3, 7]])
    with pytest.raises(InputError, match=r"3 placeholders \(id 7\), .* 2 vectors: the placeholder at \(1, 2\) has no"):
        one.merge(ids, torch.randn(2, 6), 7)
    with pytest.raises(InputError, match=r"has 4 vectors: vector 3 has no placeholder"):
        one.merge(ids, [torch.randn(3, 6), torch.randn(1, 6)], 7)
    with pytest.raises(ShapeError, match=r"features\[1\] has shape \(1, 5\); its last axis must have width 6"):
        one.merge(ids, [torch.randn(3, 6), torch.randn(1, 5)], 7)
    merge = inspect.unwrap(Embeddings.merge)  # without the type checks of the tests
    with pytest.raises(DtypeError, match="features is None; it must be a tensor or a list of tensors"):
        merge(one, ids, None, 7)
    with pytest.raises(DtypeError, match="placeholder_id is a str; it must be an integer"):
        merge(one, ids, torch.randn(3, 6), "x")
