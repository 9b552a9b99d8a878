"""Initialization rules: their scale and seed; the global random state is unchanged."""

from __future__ import annotations

import pytest
import torch

from inlayer.errors import InputError
from inlayer.initialization import INIT_RULES, init_rows, mean_row
from inlayer.tables import Table


@pytest.mark.parametrize(("rule", "std"), [("normal", 0.3), ("embedding", 1.0), ("scaled", 1 / 8)])
def test_scale_of_each_rule(rule: str, std: float) -> None:
    rows = Table(4000, 64, init=rule, init_std=0.3, seed=0).weight.detach()
    assert rows.mean().abs() < 4 * std / 500  # 256,000 draws: the mean's own deviation is std / 506
    assert (rows.std() / std - 1).abs() < 0.01


def test_normal_matches_torch() -> None:
    ours = Table(7, 5, init_std=0.02, seed=3).weight.detach()
    theirs = torch.empty(7, 5).normal_(0.0, 0.02, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


@pytest.mark.parametrize("rule", INIT_RULES)
def test_seed_is_reproducible_and_private(rule: str) -> None:
    before = torch.get_rng_state()
    first, second, other = (Table(7, 5, init=rule, seed=seed).weight for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_without_a_seed_the_global_generator_is_used() -> None:
    torch.manual_seed(5)
    first, second = Table(7, 5).weight, Table(7, 5).weight
    torch.manual_seed(5)
    again = Table(7, 5).weight
    assert torch.equal(first, again)
    assert not torch.equal(first, second)


@pytest.mark.usefixtures("without_type_checks")
def test_unknown_rule() -> None:
    with pytest.raises(InputError, match="init is 'xavier'; it must be one of 'normal', 'embedding', 'scaled'"):
        Table(7, 5, init="xavier")


def test_zeros() -> None:
    rows = torch.ones(3, 2)
    init_rows(rows, "zeros", 0.02, None)
    assert torch.equal(rows, torch.zeros(3, 2))


@pytest.mark.parametrize("padding_idx", [None, 0, 2, 4])
def test_mean_row_excludes_the_padding_row(padding_idx: int | None) -> None:
    rows = torch.randn(5, 3, dtype=torch.float64)
    keep = [i for i in range(5) if i != padding_idx]
    torch.testing.assert_close(mean_row(rows, padding_idx), rows[keep].mean(0))
    torch.testing.assert_close(mean_row(rows.bfloat16(), padding_idx), rows[keep].bfloat16().float().mean(0).bfloat16())


def test_mean_row_is_summed_in_float32() -> None:
    ours = mean_row(torch.full((4096, 1), 1.0).half() * 100, None)  # the sum is past float16
    assert ours.item() == 100.0


def test_mean_row_of_only_padding_is_zero() -> None:
    assert torch.equal(mean_row(torch.ones(1, 3), 0), torch.zeros(3))
