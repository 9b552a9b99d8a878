"""Table: behaves like nn.Embedding, with a padding row that stays zero."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from torch import nn

from inlayer.errors import DtypeError, IdRangeError, InputError, ShapeError
from inlayer.tables import Table


def test_values_and_gradients_match_nn_embedding() -> None:
    ours = Table(11, 4, padding_idx=2)
    theirs = nn.Embedding(11, 4, padding_idx=2, _weight=ours.weight.detach().clone())
    ids = torch.tensor([[1, 2, 10], [0, 2, 2]])
    assert isinstance(ours, nn.Embedding)
    assert (ours.num_embeddings, ours.embedding_dim, ours.padding_idx) == (11, 4, 2)
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]
    for table in (ours, theirs):
        (table(ids) ** 2).sum().backward()
    torch.testing.assert_close(ours(ids), theirs(ids), rtol=0, atol=0)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad, rtol=0, atol=0)


@pytest.mark.parametrize("init", ["normal", "embedding", "scaled"])
@pytest.mark.parametrize("padding_idx", [0, 3, -1])
def test_padding_row_is_zero_after_every_initialization(init: str, padding_idx: int) -> None:
    table = Table(7, 4, padding_idx=padding_idx, init=init)
    for _ in range(2):
        zero = (table.weight == 0).all(1)
        assert zero.nonzero().flatten().tolist() == [padding_idx % 7]
        with torch.no_grad():
            table.weight.fill_(1.0)
        table.reset_parameters()


def test_reset_parameters_through_apply() -> None:
    model = nn.Sequential(Table(7, 4, padding_idx=1))
    model.to_empty(device="cpu")
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert bool((model[0].weight[1] == 0).all())
    assert bool(model[0].weight.isfinite().all())


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "5"])
def test_sizes_must_be_positive_integers(size: object) -> None:
    for arguments in ((size, 4), (4, size)):
        with pytest.raises((InputError, TypeError)) as caught:  # beartype speaks first where the type is wrong
            Table(*arguments)
        if type(size) is int:
            assert isinstance(caught.value, InputError)


@pytest.mark.parametrize("padding_idx", [7, -8, 100])
def test_padding_idx_outside_the_table_is_an_error(padding_idx: int) -> None:
    with pytest.raises(InputError, match=r"outside -7\.\.6"):
        Table(7, 4, padding_idx=padding_idx)


@pytest.mark.parametrize("init_std", [-0.1, float("nan"), float("inf")])
def test_invalid_init_std_is_an_error(init_std: float) -> None:
    with pytest.raises(InputError, match="init_std"):
        Table(7, 4, init_std=init_std)


def test_dtype_must_be_floating_point() -> None:
    with pytest.raises(DtypeError, match="int64"):
        Table(7, 4, dtype=torch.int64)


def test_meta_device() -> None:
    table = Table(10**9, 7168, padding_idx=0, seed=1, device="meta", dtype=torch.bfloat16)
    assert table.weight.is_meta
    assert table(torch.zeros(2, 3, dtype=torch.int64, device="meta")).shape == (2, 3, 7168)


def test_ids_are_checked() -> None:
    with pytest.raises(IdRangeError, match=r"id 7 at \[0\] is outside 0\.\.6"):
        Table(7, 4)(torch.tensor([7]))
    with pytest.raises(DtypeError):
        Table(7, 4)(torch.tensor([1.0]))


def test_from_weight_shares_memory() -> None:
    weight = torch.randn(7, 4, dtype=torch.bfloat16)
    table = Table.from_weight(weight, padding_idx=1)
    assert table.weight.data_ptr() == weight.data_ptr()
    assert torch.equal(table.weight, weight)
    assert bool((table.weight[1] != 0).any())  # not zeroed
    assert table.padding_idx == 1
    parameter = nn.Parameter(weight)
    assert Table.from_weight(parameter).weight is parameter


@pytest.mark.parametrize("weight", [torch.ones(3), torch.ones(0, 4), torch.ones(4, 0), torch.ones(1, 2, 3)])
def test_from_weight_with_the_wrong_shape_is_an_error(weight: torch.Tensor) -> None:
    with pytest.raises(ShapeError):
        Table.from_weight(weight)


def test_from_weight_with_the_wrong_dtype_is_an_error() -> None:
    with pytest.raises(DtypeError, match="int64"):
        Table.from_weight(torch.ones(3, 4, dtype=torch.int64))


def test_from_pretrained_freezes_like_nn_embedding() -> None:
    weight = torch.randn(7, 4)
    assert not Table.from_pretrained(weight).weight.requires_grad
    assert Table.from_pretrained(weight, freeze=False).weight.requires_grad


def test_deepcopy_pickle_and_state_dict() -> None:
    table = Table(7, 4, padding_idx=1, seed=3)
    buffer = io.BytesIO()
    torch.save(table, buffer)
    buffer.seek(0)
    loaded = Table(7, 4)
    loaded.load_state_dict(table.state_dict())
    for copied in (copy.deepcopy(table), torch.load(buffer, weights_only=False), loaded):
        assert torch.equal(copied.weight, table.weight)
        assert copied.weight is not table.weight


@pytest.mark.parametrize("init", ["mean", "zeros", "normal", "embedding", "scaled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_resize_keeps_old_rows_and_fills_new_ones(init: str, dtype: torch.dtype) -> None:
    table = Table(7, 4, padding_idx=1, dtype=dtype, seed=0)
    old = table.weight.detach().clone()
    assert table.resize(10, init=init) == 10
    assert (table.num_embeddings, tuple(table.weight.shape), table.weight.dtype) == (10, (10, 4), dtype)
    torch.testing.assert_close(table.weight[:7], old, rtol=0, atol=0)
    new = table.weight[7:].detach()
    if init == "mean":
        theirs = old[[0, 2, 3, 4, 5, 6]].float().mean(0).to(dtype).expand(3, 4)
        torch.testing.assert_close(new, theirs)
        assert not torch.allclose(new, old.float().mean(0).to(dtype).expand(3, 4))  # control: the padding row counted
    elif init == "zeros":
        assert torch.equal(new, torch.zeros_like(new))
    else:
        assert bool((new != 0).all())
        assert not torch.equal(new, old[:3])  # a seed must not repeat the first rows
    assert table(torch.tensor([9])).shape == (1, 4)


def test_resize_keeps_module_and_requires_grad() -> None:
    table = Table(7, 4).requires_grad_(False)
    table.resize(9)
    assert not table.weight.requires_grad
    assert isinstance(table.weight, nn.Parameter)


def test_resize_pads_to_a_multiple() -> None:
    assert Table(7, 4).resize(9, pad_to_multiple_of=8) == 16
    assert Table(7, 4).resize(16, pad_to_multiple_of=8) == 16
    assert Table(7, 4).resize(5, pad_to_multiple_of=8) == 8


def test_resize_to_the_same_size_changes_nothing() -> None:
    table = Table(7, 4)
    weight = table.weight
    assert table.resize(7) == 7
    assert table.weight is weight


def test_resize_never_shrinks_silently() -> None:
    table = Table(7, 4, padding_idx=5)
    old = table.weight.detach().clone()
    with pytest.raises(InputError, match=r"from 7 to 6 rows would drop 1 of them; pass allow_shrink=True"):
        table.resize(6)
    with pytest.raises(InputError, match="drop the padding row 5"):
        table.resize(3, allow_shrink=True)
    assert torch.equal(table.weight, old)
    assert table.resize(6, allow_shrink=True) == 6
    assert torch.equal(table.weight, old[:6])


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("arguments", [{"new_vocab_size": 0}, {"new_vocab_size": 9, "pad_to_multiple_of": 0}])
def test_resize_to_invalid_sizes_is_an_error(arguments: dict[str, int]) -> None:
    with pytest.raises(InputError):
        Table(7, 4).resize(**arguments)
    with pytest.raises(InputError, match="init is 'random'; it must be one of"):
        Table(7, 4).resize(9, init="random")


def test_resize_on_meta() -> None:
    table = Table(7, 4, device="meta")
    assert table.resize(12, init="normal") == 12
    assert table.weight.is_meta
