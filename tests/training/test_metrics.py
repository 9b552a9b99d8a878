"""Measurements compared with numpy and autograd; alerts are raised when they should be, and only then."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inlayer.training.config import TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.metrics import Alerts, measure_rows, record_input_gradient
from inlayer.training.trainer import Trainer
from tests.training.models import VOCABULARY, make_config

WINDOWS, BLOCK = 4, 24


def draw_windows(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY // 2, (WINDOWS, BLOCK + 1), generator=generator)  # half of the ids


def sides(decoder: Decoder, windows: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of lookups and head, from autograd on an untied copy; padding has neither targets nor a gradient."""
    apart = copy.deepcopy(decoder)
    apart.head.untie()
    targets = windows[:, 1:].flatten()
    losses = functional.cross_entropy(apart.logits(windows[:, :-1]).flatten(0, 1), targets, reduction="none")
    padding_idx = decoder.config.padding_idx
    if padding_idx is not None:
        losses = losses[targets != padding_idx]
    (losses.sum() / len(targets)).backward()
    table, head = apart.embeddings.token_embedding.weight.grad, apart.head.weight.grad
    assert table is not None
    assert head is not None
    if padding_idx is not None:
        head[padding_idx] = 0
    return table, head


# ---- gradients of lookups and head


@pytest.mark.parametrize(
    ("architecture", "model", "accumulate"),
    [
        ("gpt", {}, 1),
        ("llama", {"input_scale": 6.0, "output_scale": 0.2}, 4),
        ("llama", {"padding_idx": 1, "soft_cap": 9.0}, 1),
        ("gpt", {"positions": "sinusoidal", "padding_idx": 0}, 4),
    ],
)
def test_gradients_of_a_tied_table_match_autograd(architecture: str, model: dict[str, Any], accumulate: int) -> None:
    settings = TrainConfig(batch_size=WINDOWS, gradient_accumulation_steps=accumulate, max_grad_norm=1e-3)
    trainer = Trainer(make_config(architecture, tie=True, **model), settings)
    into, out = sides(trainer.decoder, draw_windows())
    line = trainer.take_step(draw_windows())
    assert line["lookup_gradient_norm"] == pytest.approx(float(into.norm()), rel=1e-4)  # before clipping
    assert line["head_gradient_norm"] == pytest.approx(float(out.norm()), rel=1e-4)
    assert line["head_gradient_share"] == pytest.approx(float(out.norm() / (into.norm() + out.norm())), rel=1e-4)
    assert line["lookup_gradient_norm"] != pytest.approx(
        line["head_gradient_norm"], rel=1e-2
    )  # control: not interchangeable


def test_gradients_of_an_untied_table() -> None:
    trainer = Trainer(make_config("llama"), TrainConfig(batch_size=WINDOWS))
    into, out = sides(trainer.decoder, draw_windows())
    line = trainer.take_step(draw_windows())
    assert line["lookup_gradient_norm"] == pytest.approx(float(into.norm()), rel=1e-4)
    assert line["head_gradient_norm"] == pytest.approx(float(out.norm()), rel=1e-4)


def test_input_gradient_elementwise() -> None:
    decoder = Decoder(make_config("gpt", tie=True, padding_idx=3), seed=0).train()
    expected, _ = sides(decoder, draw_windows())
    handle, ours = record_input_gradient(decoder.embeddings.token_embedding)
    with handle:
        windows = draw_windows()
        decoder.loss(windows[:, :-1], windows[:, 1:], reduction="sum").div(WINDOWS * BLOCK).backward()
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-8)
    assert not ours[3].any()
    assert not ours[VOCABULARY // 2 :].any()


def test_nothing_is_recorded_outside_the_block_or_without_gradients() -> None:
    decoder = Decoder(make_config("llama", tie=True), seed=0)
    windows = draw_windows()
    handle, ours = record_input_gradient(decoder.embeddings.token_embedding)
    with handle, torch.no_grad():
        decoder(windows[:, :-1])
    decoder.loss(windows[:, :-1], windows[:, 1:]).backward()
    assert not ours.any()
    assert not decoder.embeddings.token_embedding._forward_hooks


# ---- rows


@pytest.mark.parametrize("padding_idx", [None, 0, 4, 8])
def test_row_measurements_match_numpy(padding_idx: int | None) -> None:
    table = np.random.default_rng(0).normal(0.3, 1.0, (9, 5)).astype(np.float32)
    kept = table
    if padding_idx is not None:
        table[padding_idx] = 0
        kept = np.delete(table, padding_idx, axis=0)
    norms = np.linalg.norm(kept.astype(np.float64), axis=1)
    ours = measure_rows(torch.from_numpy(table), padding_idx)
    assert ours == pytest.approx(
        {
            "row_norm_min": norms.min(),
            "row_norm_mean": norms.mean(),
            "row_norm_max": norms.max(),
            "mean_vector_ratio": np.linalg.norm(kept.mean(0)) / norms.mean(),
        },
        rel=1e-6,
    )


def test_mean_vector_ratio_limits() -> None:
    same = torch.tensor([[3.0, 4.0]]).repeat(6, 1)
    assert measure_rows(same)["mean_vector_ratio"] == pytest.approx(1.0)
    assert measure_rows(torch.cat((same, -same)))["mean_vector_ratio"] == 0.0
    assert measure_rows(torch.zeros(3, 2))["mean_vector_ratio"] == 0.0
    assert measure_rows(same.bfloat16())["row_norm_mean"] == 5.0


# ---- alerts


def healthy(steps: int = 200) -> list[dict[str, float]]:
    """A noisy falling loss and a normally growing table."""
    noise = np.random.default_rng(0).normal(0, 0.3, steps)
    lines: list[dict[str, float]] = []
    for step in range(1, steps + 1):
        line: dict[str, float] = {"step": step, "loss": 3 + 5 * math.exp(-step / 40) + noise[step - 1]}
        if step % 20 == 0:
            line |= {"row_norm_max": 0.5 + step / 100, "mean_vector_ratio": 0.2, "logit_std": 3.0}
        lines.append(line)
    return lines


def alerts_of(lines: Iterable[dict[str, float]]) -> list[tuple[int, str]]:
    alerts = Alerts()
    return [(int(line["step"]), message) for line in lines for message in alerts.check(line)]


def test_healthy_run_has_no_alerts() -> None:
    assert alerts_of(healthy()) == []


def test_rising_loss_is_reported_once() -> None:
    lines = healthy()
    for line in lines[150:]:
        line["loss"] += 4.0
    ((step, message),) = alerts_of(lines)
    assert 150 < step < 175
    assert message.startswith("loss rose from 3.")
    assert message.endswith(f"by step {step}; the run is diverging")


def test_single_outlier_is_ignored() -> None:
    lines = healthy()
    lines[100]["loss"] += 8.0
    assert alerts_of(lines) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("row_norm_max", 41.0, "largest row norm grew from 0.7 to 41 by step 120"),
        ("logit_std", 25.0, "standard deviation of the logits is 25.0 at step 120"),
    ],
)
def test_alert_is_raised_once_when_first_seen(name: str, value: float, words: str) -> None:
    lines = healthy()
    for line in lines[110:]:
        if name in line:
            line[name] = value
    ((step, message),) = alerts_of(lines)
    assert step == 120
    assert message.startswith(words)


def test_several_alerts_in_one_run() -> None:
    lines = healthy()
    for line in lines[100:]:
        line["loss"] += 5
        if "logit_std" in line:
            line |= {"row_norm_max": 99.0, "logit_std": 30.0}
    assert len(alerts_of(lines)) == 3


def test_resumed_run_repeats_no_alert() -> None:
    lines = healthy()
    for line in lines[100:]:
        line["loss"] += 5
    whole = alerts_of(lines)
    alerts = Alerts()
    before = [message for line in lines[:120] for message in alerts.check(line)]
    again = Alerts()
    for line in lines[:120]:  # like a resumed run, which reads its metrics
        again.check(line)
    after = [message for line in lines[120:] for message in again.check(line)]
    assert before + after == [message for _, message in whole]


def test_nonfinite_values() -> None:
    lines = healthy(60)
    for line in lines[30:]:
        line["loss"] = math.nan
        if "logit_std" in line:
            line |= {"mean_vector_ratio": math.nan, "row_norm_max": math.inf, "logit_std": math.nan}
    assert [message for _, message in alerts_of(lines)] == ["largest row norm grew from 0.7 to inf by step 40"]


def test_unigram_loss_is_reported_once() -> None:
    stuck, learning, short = (Alerts(unigram_loss=6.0, steps=500) for _ in range(3))
    lines = [{"step": step, "loss": 5.98} for step in range(1, 400)]
    found = [(line["step"], words) for line in lines for words in stuck.check(line)]
    assert [step for step, _ in found] == [250]  # half of the steps
    assert "token frequencies alone give 6.00" in found[0][1]
    assert not any(learning.check({**line, "loss": 5.9}) for line in lines)
    assert not any(short.check(line) for line in lines[:249])
