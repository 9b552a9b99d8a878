"""What is measured against numpy and autograd, and every sign of trouble seen where it is and nowhere else."""

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

from inlayer.training.config import Settings
from inlayer.training.decoder import Decoder
from inlayer.training.metrics import Alerts, InputSide, measure_rows
from inlayer.training.parallel import World
from inlayer.training.trainer import Trainer
from tests.training.models import VOCABULARY, make_config

WINDOWS, BLOCK = 4, 24


def draw_windows(seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY // 2, (WINDOWS, BLOCK + 1), generator=generator)  # half the rows are not seen


def sides(decoder: Decoder, windows: Tensor) -> tuple[Tensor, Tensor]:
    """By autograd, on a copy whose head has rows of its own; the padding id is no target, its row takes no gradient."""
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


# ---- the two sides of a tied table


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize(
    ("architecture", "model"),
    [
        ("gpt", {}),
        ("llama", {"input_scale": 6.0, "output_scale": 0.2}),
        ("llama", {"padding_idx": 1, "soft_cap": 9.0}),
        ("gpt", {"positions": "sinusoidal", "padding_idx": 0}),
    ],
)
def test_the_sides_of_a_tied_table_are_those_of_autograd(
    architecture: str, model: dict[str, Any], accumulate: int
) -> None:
    settings = Settings(batch_size=WINDOWS, accumulate=accumulate, clip=1e-3)
    trainer = Trainer(make_config(architecture, tie=True, **model), settings)
    into, out = sides(trainer.decoder, draw_windows())
    line = trainer.take_step(draw_windows())
    assert line["input_gradient"] == pytest.approx(float(into.norm()), rel=1e-4)  # as it was before it was clipped
    assert line["output_gradient"] == pytest.approx(float(out.norm()), rel=1e-4)
    assert line["output_share"] == pytest.approx(float(out.norm() / (into.norm() + out.norm())), rel=1e-4)
    assert line["input_gradient"] != pytest.approx(line["output_gradient"], rel=1e-2)  # could have been exchanged


def test_untied_each_side_has_its_own_gradient() -> None:
    trainer = Trainer(make_config("llama"), Settings(batch_size=WINDOWS))
    into, out = sides(trainer.decoder, draw_windows())
    line = trainer.take_step(draw_windows())
    assert line["input_gradient"] == pytest.approx(float(into.norm()), rel=1e-4)
    assert line["output_gradient"] == pytest.approx(float(out.norm()), rel=1e-4)


def test_the_input_side_elementwise() -> None:
    decoder = Decoder(make_config("gpt", tie=True, padding_idx=3), seed=0).train()
    side = InputSide(decoder)
    expected, _ = sides(decoder, draw_windows())
    with side.watched():
        windows = draw_windows()
        decoder.loss(windows[:, :-1], windows[:, 1:], reduction="sum").div(WINDOWS * BLOCK).backward()
    ours = side.total(World())
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-8)
    assert not ours[3].any()
    assert not ours[VOCABULARY // 2 :].any()


def test_nothing_is_watched_outside_the_block_nor_without_gradients() -> None:
    decoder = Decoder(make_config("llama", tie=True), seed=0)
    side, windows = InputSide(decoder), draw_windows()
    with side.watched(), torch.no_grad():
        decoder(windows[:, :-1])
    decoder.loss(windows[:, :-1], windows[:, 1:]).backward()
    assert side.grad_VD is None
    assert not decoder.embeddings.token_embedding._forward_hooks


# ---- rows


@pytest.mark.parametrize("padding_idx", [None, 0, 4, 8])
def test_rows_are_measured_as_numpy_does(padding_idx: int | None) -> None:
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
            "mean_row_ratio": np.linalg.norm(kept.mean(0)) / norms.mean(),
        },
        rel=1e-6,
    )


def test_the_ratio_at_its_ends() -> None:
    same = torch.tensor([[3.0, 4.0]]).repeat(6, 1)
    assert measure_rows(same)["mean_row_ratio"] == pytest.approx(1.0)
    assert measure_rows(torch.cat((same, -same)))["mean_row_ratio"] == 0.0
    assert measure_rows(torch.zeros(3, 2))["mean_row_ratio"] == 0.0
    assert measure_rows(same.bfloat16())["row_norm_mean"] == 5.0


# ---- signs


def healthy(steps: int = 200) -> list[dict[str, float]]:
    """A loss that falls with noise, a table that grows as tables do."""
    noise = np.random.default_rng(0).normal(0, 0.3, steps)
    lines: list[dict[str, float]] = []
    for step in range(1, steps + 1):
        line: dict[str, float] = {"step": step, "loss": 3 + 5 * math.exp(-step / 40) + noise[step - 1]}
        if step % 20 == 0:
            line |= {"row_norm_max": 0.5 + step / 100, "mean_row_ratio": 0.2, "logit_std": 3.0}
        lines.append(line)
    return lines


def told(lines: Iterable[dict[str, float]]) -> list[tuple[int, str]]:
    signs = Alerts()
    return [(int(line["step"]), said) for line in lines for said in signs.look(line)]


def test_a_healthy_run_has_no_sign() -> None:
    assert told(healthy()) == []


def test_a_loss_that_rises_is_told_once() -> None:
    lines = healthy()
    for line in lines[150:]:
        line["loss"] += 4.0
    ((step, said),) = told(lines)
    assert 150 < step < 175
    assert said.startswith("the loss rose from 3.")
    assert said.endswith(f"by step {step}: it diverges")


def test_one_bad_batch_is_no_sign() -> None:
    lines = healthy()
    lines[100]["loss"] += 8.0
    assert told(lines) == []


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("row_norm_max", 41.0, "the longest row has grown from 0.7 to 41 by step 120"),
        ("logit_std", 25.0, "logits spread by 25.0 at step 120"),
    ],
)
def test_each_sign_is_told_once_where_it_is_first_seen(name: str, value: float, words: str) -> None:
    lines = healthy()
    for line in lines[110:]:
        if name in line:
            line[name] = value
    ((step, said),) = told(lines)
    assert step == 120
    assert said.startswith(words)


def test_all_signs_in_one_run_are_each_told() -> None:
    lines = healthy()
    for line in lines[100:]:
        line["loss"] += 5
        if "logit_std" in line:
            line |= {"row_norm_max": 99.0, "logit_std": 30.0}
    assert len(told(lines)) == 3


def test_a_run_that_goes_on_tells_nothing_twice() -> None:
    lines = healthy()
    for line in lines[100:]:
        line["loss"] += 5
    whole = told(lines)
    signs = Alerts()
    before = [said for line in lines[:120] for said in signs.look(line)]
    again = Alerts()
    for line in lines[:120]:  # as a run does that reads its metrics again
        again.look(line)
    after = [said for line in lines[120:] for said in again.look(line)]
    assert before + after == [said for _, said in whole]


def test_values_that_are_no_numbers_do_no_harm() -> None:
    lines = healthy(60)
    for line in lines[30:]:
        line["loss"] = math.nan
        if "logit_std" in line:
            line |= {"mean_row_ratio": math.nan, "row_norm_max": math.inf, "logit_std": math.nan}
    assert [said for _, said in told(lines)] == ["the longest row has grown from 0.7 to inf by step 40"]


def test_a_run_that_knows_frequencies_alone_is_told_once() -> None:
    stuck, learning, short = (Alerts(unigram=6.0, steps=500) for _ in range(3))
    lines = [{"step": step, "loss": 5.98} for step in range(1, 400)]
    said = [(line["step"], words) for line in lines for words in stuck.look(line)]
    assert [step for step, _ in said] == [250]  # half of the steps
    assert "6.00 is what token frequencies alone give" in said[0][1]
    assert not any(learning.look({**line, "loss": 5.9}) for line in lines)
    assert not any(short.look(line) for line in lines[:249])
