"""Parameter groups, learning rates, and both kinds of AdamW compared with plain code and with torch."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from inlayer.training.config import TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.optimizer import CoupledAdamW, make_groups, make_optimizers, set_learning_rates
from tests.training.models import make_config

BETAS, EPS = (0.9, 0.95), 1e-8


def groups_of(decoder: Decoder, **settings: Any) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for group in make_groups(decoder, TrainConfig(tie=decoder.config.tie, **settings))}


def names_in(decoder: Decoder, group: dict[str, Any]) -> set[str]:
    names = {id(parameter): name for name, parameter in decoder.named_parameters()}
    return {names[id(parameter)] for parameter in group["params"]}


# ---- groups


@pytest.mark.parametrize("tie", [True, False])
@pytest.mark.parametrize(
    ("architecture", "positions"), [("gpt", "learned"), ("gpt", "sinusoidal"), ("llama", "rotary")]
)
def test_every_parameter_is_in_its_group(architecture: str, positions: str, tie: bool) -> None:
    decoder = Decoder(make_config(architecture, positions=positions, tie=tie), seed=0)
    groups = groups_of(decoder)
    expected = {"table", "matrices", "vectors"}
    expected |= set() if tie else {"head"}
    expected |= {"positions"} if positions == "learned" else set()
    assert set(groups) == expected
    assert names_in(decoder, groups["table"]) == {"embeddings.token_embedding.weight"}
    if not tie:
        assert names_in(decoder, groups["head"]) == {"head.weight"}
    if positions == "learned":
        assert names_in(decoder, groups["positions"]) == {"embeddings.position_embedding.weight"}
    body = {name for name, _ in decoder.named_parameters() if name.startswith(("blocks.", "norm."))}
    matrices = {name for name in body if name.endswith((".qkv.weight", ".out.weight", ".up.weight", ".down.weight"))}
    assert names_in(decoder, groups["matrices"]) == matrices
    assert names_in(decoder, groups["vectors"]) == body - matrices
    everything = [id(parameter) for group in groups.values() for parameter in group["params"]]
    assert sorted(everything) == sorted(map(id, decoder.parameters()))  # each exactly once


def test_only_matrices_decay_by_default() -> None:
    decoder = Decoder(make_config("gpt"), seed=0)
    assert {name: group["weight_decay"] for name, group in groups_of(decoder).items()} == {
        "table": 0.0, "positions": 0.0, "head": 0.0, "matrices": 0.1, "vectors": 0.0,
    }  # fmt: skip
    decayed = groups_of(decoder, embedding_weight_decay=0.3, weight_decay=0.2)
    assert {name: group["weight_decay"] for name, group in decayed.items()} == {
        "table": 0.3, "positions": 0.3, "head": 0.3, "matrices": 0.2, "vectors": 0.0,
    }  # fmt: skip


def test_input_norm_does_not_decay() -> None:
    decoder = Decoder(make_config("llama", input_norm=True), seed=0)
    assert "input_norm.weight" in names_in(decoder, groups_of(decoder)["vectors"])


def test_learning_rate_of_each_group() -> None:
    decoder = Decoder(make_config("gpt"), seed=0)
    settings = TrainConfig(
        tie=False, embedding_lr_scale=0.5, head_lr_scale=3.0, learning_rate=9.0, shared_second_moment=True
    )
    optimizers = make_optimizers(decoder, settings)
    for rate in (1e-3, 2e-4):
        set_learning_rates(optimizers, rate)
        found = {group["name"]: group["lr"] for optimizer in optimizers for group in optimizer.param_groups}
        expected = {"table": 0.5, "positions": 0.5, "head": 3.0, "matrices": 1.0, "vectors": 1.0}
        assert found == pytest.approx({name: factor * rate for name, factor in expected.items()})


def test_shared_moment_applies_to_the_table_only() -> None:
    decoder = Decoder(make_config("llama"), seed=0)
    plain, coupled = make_optimizers(
        decoder, TrainConfig(shared_second_moment=True, adam_beta1=0.8, adam_beta2=0.9, adam_epsilon=1e-6)
    )
    assert isinstance(plain, torch.optim.AdamW)
    assert isinstance(coupled, CoupledAdamW)
    assert [group["name"] for group in coupled.param_groups] == ["table"]
    assert [group["name"] for group in plain.param_groups] == ["head", "matrices", "vectors"]
    for group in (*plain.param_groups, *coupled.param_groups):
        assert (group["betas"], group["eps"]) == ((0.8, 0.9), 1e-6)
    assert len(make_optimizers(decoder, TrainConfig())) == 1


# ---- steps


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(rows: int, steps: int = 6) -> list[Tensor]:
    """Gradients of rows that differ by a factor of 1,000, like those of frequent and rare tokens."""
    size_V1 = torch.logspace(0, -3, rows, dtype=torch.float64)[:, None]
    return [size_V1 * draw(rows, 4, seed=10 + step) for step in range(steps)]


def plain_adamw(start: Tensor, grads: list[Tensor], rates: list[float], decay: float, *, shared: bool) -> Tensor:
    """AdamW as in the paper, optionally with one second moment for all rows."""
    weight, m, v = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for step, (grad, rate) in enumerate(zip(grads, rates, strict=True), 1):
        square = (grad**2).mean(0, keepdim=True).repeat(len(grad), 1) if shared else grad**2
        m = BETAS[0] * m + (1 - BETAS[0]) * grad
        v = BETAS[1] * v + (1 - BETAS[1]) * square
        right_m, right_v = m / (1 - BETAS[0] ** step), v / (1 - BETAS[1] ** step)
        weight = weight - rate * decay * weight - rate * right_m / (right_v.sqrt() + EPS)
    return weight


def run(optimizer: torch.optim.Optimizer, parameter: nn.Parameter, grads: list[Tensor], rates: list[float]) -> Tensor:
    for grad, rate in zip(grads, rates, strict=True):
        set_learning_rates([optimizer], rate)
        parameter.grad = grad.clone()
        optimizer.step()
        optimizer.zero_grad()
    return parameter.detach()


RATES = [1e-2, 2e-2, 3e-2, 3e-2, 2e-2, 1e-2]


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_coupled_adamw_is_adamw_with_the_mean_of_squares(decay: float) -> None:
    parameter, grads = nn.Parameter(draw(7, 4, seed=0)), gradients(7)
    start = parameter.detach().clone()
    optimizer = CoupledAdamW(
        [{"params": [parameter], "rate": 1.0, "weight_decay": decay}], lr=0.0, betas=BETAS, eps=EPS
    )
    ours = run(optimizer, parameter, grads, RATES)
    theirs = plain_adamw(start, grads, RATES, decay, shared=True)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)
    assert optimizer.state[parameter]["exp_avg_sq"].shape == (1, 4)
    control = plain_adamw(start, grads, RATES, decay, shared=False)
    assert float((ours - control).abs().max()) > 1e-2


def test_coupled_adamw_of_one_row_matches_torch() -> None:
    ours, theirs = (nn.Parameter(draw(1, 4, seed=0)) for _ in range(2))
    grads = gradients(1)
    group = {"rate": 1.0, "weight_decay": 0.1}
    coupled = CoupledAdamW([{"params": [ours], **group}], lr=0.0, betas=BETAS, eps=EPS)
    plain = torch.optim.AdamW([{"params": [theirs], **group}], lr=0.0, betas=BETAS, eps=EPS)
    torch.testing.assert_close(run(coupled, ours, grads, RATES), run(plain, theirs, grads, RATES), rtol=1e-12, atol=0)


def test_coupled_adamw_skips_parameters_without_gradient() -> None:
    still, moved = nn.Parameter(draw(3, 4, seed=0)), nn.Parameter(draw(3, 4, seed=1))
    optimizer = CoupledAdamW([{"params": [still, moved], "rate": 1.0}], lr=1e-2, betas=BETAS, eps=EPS)
    before = still.detach().clone()
    run(optimizer, moved, gradients(3)[:1], [1e-2])
    assert torch.equal(still, before)
    assert still not in optimizer.state


def test_shared_moment_keeps_the_scale_of_rare_rows() -> None:
    """A row with a tiny gradient takes a tiny step, while AdamW gives all rows steps of equal size."""
    parameter = nn.Parameter(torch.zeros(2, 4, dtype=torch.float64))
    grad = torch.tensor([[1.0] * 4, [1e-3] * 4], dtype=torch.float64)
    optimizer = CoupledAdamW([{"params": [parameter], "rate": 1.0}], lr=0.0, betas=BETAS, eps=EPS)
    ours = run(optimizer, parameter, [grad], [1.0])
    assert float(ours[1, 0] / ours[0, 0]) == pytest.approx(1e-3)
    assert float(ours[0, 0]) == pytest.approx(-math.sqrt(2), rel=1e-5)


def test_optimizer_of_a_decoder_matches_plain_adamw() -> None:
    """The fused optimizer in every group, elementwise in float64."""
    decoder = Decoder(make_config("gpt"), seed=0).double()
    settings = TrainConfig(
        tie=False, weight_decay=0.1, embedding_weight_decay=0.05, embedding_lr_scale=0.5, head_lr_scale=2.0
    )
    (optimizer,) = make_optimizers(decoder, settings)
    start = {name: parameter.detach().clone() for name, parameter in decoder.named_parameters()}
    grads = {
        name: [0.1 * draw(*parameter.shape, seed=step) for step in range(len(RATES))]
        for name, parameter in decoder.named_parameters()
    }
    for step, rate in enumerate(RATES):
        set_learning_rates([optimizer], rate)
        for name, parameter in decoder.named_parameters():
            parameter.grad = grads[name][step].clone()
        optimizer.step()
    for name, parameter in decoder.named_parameters():
        in_layer = name.startswith("embeddings.")
        factor = 0.5 if in_layer else 2.0 if name == "head.weight" else 1.0
        decay = 0.05 if in_layer or name == "head.weight" else 0.1 if parameter.dim() == 2 else 0.0
        theirs = plain_adamw(start[name], grads[name], [factor * rate for rate in RATES], decay, shared=False)
        torch.testing.assert_close(parameter.detach(), theirs, rtol=1e-10, atol=1e-12)
