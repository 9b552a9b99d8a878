"""The trainer compared with a plain loop: full logits, torch's cross-entropy, clipping and AdamW, in float64.

In float64 both agree to many digits, so a difference is a mistake and not the order of a sum.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from benchmarks.tying_trainer import StudyTrainer
from inlayer.errors import ShapeError
from inlayer.training.config import DecoderConfig, TrainConfig
from inlayer.training.decoder import Decoder
from inlayer.training.metrics import measure_rows
from inlayer.training.trainer import Trainer

ROWS, BLOCK, VOCABULARY = 4, 10, 31
TABLE, HEAD = "embeddings.token_embedding.weight", "head.weight"


def make_decoder_config(architecture: str = "llama", **settings: Any) -> DecoderConfig:
    sizes = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 4, "block_size": BLOCK, "init_std": 0.2}
    return DecoderConfig(**{"architecture": architecture, **sizes, **settings})


def make_config(**settings: Any) -> TrainConfig:
    usual = {"steps": 8, "batch_size": ROWS, "warmup_steps": 3, "learning_rate": 1e-2, "log_interval": 0}
    return TrainConfig(**{**usual, **settings})


def make_trainer(
    decoder_config: DecoderConfig, config: TrainConfig, dtype: torch.dtype = torch.float64, **experiments: Any
) -> Trainer:
    trainer = StudyTrainer(decoder_config, config, **experiments) if experiments else Trainer(decoder_config, config)
    trainer.decoder.to(dtype)
    return trainer


def draw_windows(step: int, *, low: int = 0) -> Tensor:
    return torch.randint(low, VOCABULARY, (ROWS, BLOCK + 1), generator=torch.Generator().manual_seed(step))


def weights_of(decoder: Decoder) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in decoder.named_parameters()}


def assert_equal_weights(ours: dict[str, Tensor], theirs: dict[str, Tensor], **tolerance: float) -> None:
    """The gradient of a key's bias is rounding alone, and AdamW divides it by 1e-8: hence the absolute tolerance."""
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], **(tolerance or {"rtol": 1e-9, "atol": 1e-9}), msg=name)


def assert_same_state(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())


# ---- the plain loop


def plain_groups(decoder: Decoder, config: TrainConfig) -> list[dict[str, Any]]:
    """One group per parameter."""
    groups = []
    for name, parameter in decoder.named_parameters():
        factor, decay = 1.0, config.weight_decay if parameter.dim() == 2 else 0.0
        if name.startswith("embeddings."):
            factor, decay = config.embedding_lr_scale, config.embedding_weight_decay
        elif name == HEAD:
            factor, decay = config.head_lr_scale, config.embedding_weight_decay
        groups.append({"params": [parameter], "weight_decay": decay, "factor": factor, "name": name})
    return groups


def plain_rate(config: TrainConfig, step: int) -> float:
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    done = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    low, high = config.min_lr_ratio * config.learning_rate, config.learning_rate
    if config.lr_schedule == "constant":
        return high
    if config.lr_schedule == "linear":
        return high + (low - high) * done
    return low + (high - low) * 0.5 * (1 + math.cos(math.pi * done))


def plain_loss(decoder: Decoder, windows: Tensor, z_loss: float = 0.0) -> tuple[Tensor, Tensor]:
    """The training loss, and its terms; targets equal to the padding id are ignored."""
    logits = decoder.logits(windows[:, :-1]).flatten(0, 1)
    targets = windows[:, 1:].flatten()
    losses = functional.cross_entropy(logits, targets, reduction="none") + z_loss * logits.logsumexp(-1) ** 2
    if decoder.config.padding_idx is not None:
        losses = losses[targets != decoder.config.padding_idx]
    return losses.sum() / len(targets), losses


class PlainLoop:
    def __init__(self, decoder_config: DecoderConfig, config: TrainConfig) -> None:
        self.config = config
        self.decoder = Decoder(decoder_config, seed=config.seed).double().train()
        self._start(None)

    def _start(self, state: dict[str, Any] | None) -> None:
        config = self.config
        options = {"betas": (config.adam_beta1, config.adam_beta2), "eps": config.adam_epsilon}
        groups = plain_groups(self.decoder, config)
        self.optimizer = torch.optim.AdamW(groups, lr=1.0, foreach=False, fused=False, **options)
        for group in self.optimizer.param_groups if state else ():
            assert state is not None
            self.optimizer.state[group["params"][0]] = copy.deepcopy(state[group["name"]])

    def untie(self) -> None:
        state = {group["name"]: self.optimizer.state[group["params"][0]] for group in self.optimizer.param_groups}
        self.decoder.head.untie()
        self._start({**state, HEAD: state[TABLE]})

    def take_step(self, step: int, windows: Tensor) -> tuple[float, float]:
        loss, _ = plain_loss(self.decoder, windows, self.config.z_loss)
        self.optimizer.zero_grad()
        loss.backward()
        norm = clip_grad_norm_(self.decoder.parameters(), self.config.max_grad_norm or math.inf)
        for group in self.optimizer.param_groups:
            group["lr"] = plain_rate(self.config, step) * group["factor"]
        self.optimizer.step()
        return float(loss.detach()), float(norm)


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama tied": ({"n_kv_head": 2, "tie": True}, {}),
    "llama untied": (
        {"n_kv_head": 1},
        {"head_lr_scale": 0.3, "embedding_lr_scale": 2.0, "embedding_weight_decay": 0.2},
    ),
    "gpt learned": ({"architecture": "gpt"}, {"lr_schedule": "linear", "weight_decay": 0.5}),
    "gpt sinusoidal": ({"architecture": "gpt", "positions": "sinusoidal", "tie": True}, {"lr_schedule": "constant"}),
    "scaled": (
        {"tie": True, "init": "scaled", "input_scale": 4.0, "output_scale": 0.25},
        {"embedding_weight_decay": 0.1},
    ),
    "capped": ({"tie": True, "soft_cap": 5.0, "input_norm": True}, {"max_grad_norm": 0.05}),
    "padded": (
        {"tie": True, "padding_idx": 0},
        {"max_grad_norm": 0.0, "embedding_weight_decay": 0.1, "warmup_steps": 0},
    ),
    "accumulated": ({"tie": True}, {"gradient_accumulation_steps": 4, "max_grad_norm": 0.1}),
    "z-loss": ({"tie": True}, {"z_loss": 0.1, "adam_beta1": 0.8, "adam_beta2": 0.99, "adam_epsilon": 1e-6}),
    "z-loss, padded": ({"padding_idx": 3}, {"z_loss": 0.1, "gradient_accumulation_steps": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_steps_match_a_plain_loop(case: str) -> None:
    model, options = CASES[case]
    decoder_config = make_decoder_config(**model)
    config = make_config(tie=decoder_config.tie, **options)
    trainer, plain = make_trainer(decoder_config, config), PlainLoop(decoder_config, config)
    assert_equal_weights(weights_of(trainer.decoder), weights_of(plain.decoder), rtol=0, atol=0)
    for step in range(1, config.steps + 1):
        line = trainer.take_step(draw_windows(step))
        loss, norm = plain.take_step(step, draw_windows(step))
        assert line["step"] == step == trainer.step
        assert line["loss"] == pytest.approx(loss, rel=1e-10)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-9)
        assert line["learning_rate"] == pytest.approx(plain_rate(config, step), rel=1e-12)
    assert_equal_weights(weights_of(trainer.decoder), weights_of(plain.decoder))


@pytest.mark.parametrize(
    "other",
    [
        {"embedding_weight_decay": 0.01},
        {"weight_decay": 0.11},
        {"embedding_lr_scale": 1.01},
        {"max_grad_norm": 0.9},
        {"seed": 1},
    ],
)
def test_comparison_detects_other_settings(other: dict[str, Any]) -> None:
    config = make_decoder_config(tie=True)
    trainer, plain = make_trainer(config, make_config()), PlainLoop(config, make_config(**other))
    for step in (1, 2):
        trainer.take_step(draw_windows(step))
        plain.take_step(step, draw_windows(step))
    with pytest.raises(AssertionError):
        assert_equal_weights(weights_of(trainer.decoder), weights_of(plain.decoder))


def test_accumulation_in_float32() -> None:
    config = make_decoder_config(tie=True)
    trainers = [make_trainer(config, make_config(gradient_accumulation_steps=n), torch.float32) for n in (1, 4)]
    for step in range(1, 9):
        whole, split = (trainer.take_step(draw_windows(step)) for trainer in trainers)
        assert whole["loss"] == pytest.approx(split["loss"], rel=1e-5)
        assert whole["gradient_norm"] == pytest.approx(split["gradient_norm"], rel=1e-4)


# ---- bfloat16


def test_bfloat16_rounds_products_but_not_the_loss() -> None:
    config = make_decoder_config(tie=True)
    full, half = (
        make_trainer(config, make_config(precision=precision), torch.float32) for precision in ("float32", "bfloat16")
    )
    unrounded = 0
    for step in range(1, 9):
        theirs, ours = (trainer.take_step(draw_windows(step)) for trainer in (full, half))
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=0.02)
        assert ours["loss"] != theirs["loss"]
        unrounded += ours["loss"] != float(torch.tensor(ours["loss"]).bfloat16())
    assert unrounded >= 7  # one of 65,536 floats is a bfloat16 by chance
    assert all(value.dtype == torch.float32 for value in half.state().values())
    validated = half.validate([draw_windows(100)])
    assert validated == pytest.approx(half.validate([draw_windows(100)[:2], draw_windows(100)[2:]]), rel=1e-6)
    assert validated != float(torch.tensor(validated).bfloat16())


# ---- dropout


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_dropout_depends_on_seed_and_step(architecture: str) -> None:
    config = make_decoder_config(architecture, dropout=0.3)

    def losses(**options: Any) -> list[float]:
        """Losses at a learning rate of 0: only dropout changes them."""
        trainer = make_trainer(config, make_config(learning_rate=0.0, **options))
        found = []
        for _ in range(4):
            torch.rand(7)  # other uses of the global generator
            found.append(trainer.take_step(draw_windows(1))["loss"])
        return found

    ours = losses()
    assert ours == losses()
    assert len(set(ours)) == 4
    trainer = make_trainer(config, make_config(learning_rate=0.0))
    trainer.step = 2
    assert trainer.take_step(draw_windows(1))["loss"] == ours[2]


def test_dropout_accepts_large_seeds() -> None:
    config = make_decoder_config("gpt", dropout=0.3)
    weights = weights_of(Decoder(config, seed=0))
    found = set()
    for seed in (0, 1, 2**32, 2**63 - 1):
        trainer = make_trainer(config, make_config(seed=seed))
        trainer.decoder.load_state_dict(weights)
        found.add(trainer.take_step(draw_windows(1))["loss"])
    assert len(found) == 4


def test_validation_has_no_dropout() -> None:
    config = make_decoder_config("gpt", dropout=0.5)
    trainer = make_trainer(config, make_config())
    plain = Decoder(config, seed=0).double().eval()
    _, losses = plain_loss(plain, torch.cat((draw_windows(1), draw_windows(2)[:1])))
    # Batches of unequal size: every token has the same weight.
    ours = trainer.validate([draw_windows(1), draw_windows(2)[:1]])
    assert ours == pytest.approx(float(losses.mean().detach()), rel=1e-12)
    assert trainer.decoder.training
    assert trainer.step == 0


def test_validation_has_no_z_loss() -> None:
    config = make_decoder_config(tie=True)
    trainers = [make_trainer(config, make_config(z_loss=z_loss)) for z_loss in (0.0, 0.5)]
    plain, added = (trainer.validate([draw_windows(1)]) for trainer in trainers)
    assert plain == added


# ---- experiments on tied tables


def test_centering_subtracts_the_mean_row() -> None:
    for padding_idx in (None, 0, 5):
        config = make_decoder_config(tie=True, padding_idx=padding_idx)
        ours, theirs = (make_trainer(config, make_config(), center=center) for center in (True, False))
        for trainer in (ours, theirs):
            trainer.take_step(draw_windows(1))
        expected = weights_of(theirs.decoder)
        kept = [row for row in range(VOCABULARY) if row != padding_idx]
        expected[TABLE][kept] -= expected[TABLE][kept].mean(0)
        assert_equal_weights(weights_of(ours.decoder), expected)
        assert float(ours.table.weight.detach()[kept].mean(0).abs().max()) < 1e-15
        assert float(theirs.table.weight.detach()[kept].mean(0).abs().max()) > 1e-3  # control


@pytest.mark.parametrize("tie", [True, False])
def test_shared_moment_is_the_mean_over_the_vocabulary(tie: bool) -> None:
    decoder_config, config = (
        make_decoder_config(tie=tie),
        make_config(shared_second_moment=True, embedding_lr_scale=0.5),
    )
    trainer, plain = make_trainer(decoder_config, config), PlainLoop(decoder_config, config)
    moment = torch.zeros(16, dtype=torch.float64)
    average = torch.zeros(VOCABULARY, 16, dtype=torch.float64)
    table = plain.decoder.embeddings.token_embedding.weight
    for step in range(1, 5):
        trainer.take_step(draw_windows(step))
        before = table.detach().clone()
        plain.take_step(step, draw_windows(step))
        assert table.grad is not None
        average = config.adam_beta1 * average + (1 - config.adam_beta1) * table.grad
        moment = config.adam_beta2 * moment + (1 - config.adam_beta2) * (table.grad**2).mean(0)
        right = average / (1 - config.adam_beta1**step), moment / (1 - config.adam_beta2**step)
        rate = 0.5 * plain_rate(config, step)
        with torch.no_grad():  # replaces AdamW's step
            table.copy_(before - rate * right[0] / (right[1].sqrt() + config.adam_epsilon))
        assert_equal_weights(weights_of(trainer.decoder), weights_of(plain.decoder))


def sides(decoder: Decoder, windows: Tensor, z_loss: float = 0.0) -> tuple[Tensor, Tensor]:
    """Gradients of the two uses of a tied table, from autograd on an untied copy."""
    apart = copy.deepcopy(decoder)
    apart.head.untie()
    plain_loss(apart, windows, z_loss)[0].backward()
    table, head = apart.embeddings.token_embedding.weight, apart.head.weight
    assert table.grad is not None
    assert head.grad is not None
    return table.grad, head.grad


@pytest.mark.parametrize("factor", [0.0, 0.25])
@pytest.mark.parametrize("padding_idx", [None, 2])
def test_input_gradient_is_scaled(factor: float, padding_idx: int | None) -> None:
    decoder_config = make_decoder_config(tie=True, padding_idx=padding_idx)
    config = make_config(gradient_accumulation_steps=2)
    trainer, plain = (
        make_trainer(decoder_config, config, input_gradient_scale=factor),
        PlainLoop(decoder_config, config),
    )
    for step in range(1, 4):
        into, out = sides(plain.decoder, draw_windows(step))
        if padding_idx is not None:
            out[padding_idx] = 0
        loss, _ = plain_loss(plain.decoder, draw_windows(step))
        plain.optimizer.zero_grad()
        loss.backward()
        table = plain.decoder.embeddings.token_embedding.weight
        torch.testing.assert_close(table.grad, into + out)  # autograd returns their sum
        table.grad = factor * into + out
        norm = clip_grad_norm_(plain.decoder.parameters(), config.max_grad_norm)
        for group in plain.optimizer.param_groups:
            group["lr"] = plain_rate(config, step)
        plain.optimizer.step()
        line = trainer.take_step(draw_windows(step))
        assert line["loss"] == pytest.approx(float(loss.detach()), rel=1e-10)  # values do not change
        assert line["gradient_norm"] == pytest.approx(float(norm), rel=1e-9)
        if step == 1:  # measured
            assert line["lookup_gradient_norm"] == pytest.approx(float((factor * into).norm()), rel=1e-5, abs=1e-7)
            assert line["head_gradient_norm"] == pytest.approx(float(out.norm()), rel=1e-5)
    assert_equal_weights(weights_of(trainer.decoder), weights_of(plain.decoder))


def test_untying_copies_rows_and_moments() -> None:
    decoder_config, config = make_decoder_config(tie=True), make_config(tie=False, head_lr_scale=0.5)
    trainer, plain = make_trainer(decoder_config, config, untie_at=0.5), PlainLoop(decoder_config, config)
    for step in range(1, config.steps + 1):
        if step == 5:
            assert trainer.decoder.head.tied
            plain.untie()
        line = trainer.take_step(draw_windows(step))
        loss, norm = plain.take_step(step, draw_windows(step))
        assert line["loss"] == pytest.approx(loss, rel=1e-10)
        assert line["gradient_norm"] == pytest.approx(norm, rel=1e-9)
        assert_equal_weights(weights_of(trainer.decoder), weights_of(plain.decoder))
    assert not trainer.decoder.head.tied
    assert not trainer.decoder.config.tie
    assert not torch.equal(trainer.decoder.head.weight, trainer.table.weight)


def test_untying_expands_a_shared_moment() -> None:
    """AdamW needs a second moment for every value of the head: each row gets a copy."""
    decoder_config, config = make_decoder_config(tie=True), make_config(shared_second_moment=True)
    trainer = make_trainer(decoder_config, config, untie_at=0.5)
    for step in range(1, 5):
        trainer.take_step(draw_windows(step))
    moment = trainer.state()[f"optimizer.{TABLE}.exp_avg_sq"].clone()
    assert moment.shape == (1, 16)
    before = trainer.table.weight.detach().clone()
    average = trainer.state()[f"optimizer.{TABLE}.exp_avg"].clone()
    apart = copy.deepcopy(trainer.decoder)
    apart.head.untie()
    plain_loss(apart, draw_windows(5))[0].backward()
    norm = clip_grad_norm_(apart.parameters(), config.max_grad_norm)
    line = trainer.take_step(draw_windows(5))
    assert line["gradient_norm"] == pytest.approx(float(norm), rel=1e-9)
    grad = apart.head.weight.grad
    assert grad is not None
    average = config.adam_beta1 * average + (1 - config.adam_beta1) * grad
    moments = config.adam_beta2 * moment + (1 - config.adam_beta2) * grad**2
    right = average / (1 - config.adam_beta1**5), moments / (1 - config.adam_beta2**5)
    expected = before - plain_rate(config, 5) * right[0] / (right[1].sqrt() + config.adam_epsilon)
    torch.testing.assert_close(trainer.decoder.head.weight.detach(), expected, rtol=1e-9, atol=1e-11)


def test_step_of_untying() -> None:
    for share, steps, last_tied in ((2 / 3, 9, 6), (0.01, 8, 0), (0.99, 8, 7)):
        trainer = make_trainer(make_decoder_config(tie=True), make_config(steps=steps), untie_at=share)
        tied = []
        for step in range(1, steps + 1):
            trainer.take_step(draw_windows(step))
            tied.append(trainer.decoder.head.tied)
        assert tied == [step <= last_tied for step in range(1, steps + 1)]


# ---- the padding row


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_padding_row_stays_zero(architecture: str) -> None:
    """It is exactly zero, although it is looked up, decays, is centered, and is in every softmax of the tied head."""
    decoder_config = make_decoder_config(architecture, tie=True, padding_idx=0)
    config = make_config(steps=30, embedding_weight_decay=0.1, shared_second_moment=architecture == "gpt", z_loss=0.01)
    trainer = make_trainer(decoder_config, config, torch.float32, center=True)
    before = trainer.table.weight.detach().clone()
    for step in range(1, 31):
        windows = draw_windows(step)
        assert step > 1 or bool((windows == 0).any())
        trainer.take_step(windows)
    assert torch.equal(trainer.table.weight[0], torch.zeros(16))
    assert trainer.decoder.head.weight is trainer.table.weight
    assert float((trainer.table.weight - before)[1:].abs().sum(1).min().detach()) > 0  # all other rows have changed


# ---- state


def check_resumed(decoder_config: DecoderConfig, config: TrainConfig, at: int) -> None:
    """Steps after loading a state into another trainer are bit-identical to those of an uninterrupted one."""
    whole = make_trainer(decoder_config, config, torch.float32)
    expected = []
    for step in range(1, config.steps + 1):
        expected.append(whole.take_step(draw_windows(step)))
        if step == at:
            kept = {name: value.clone() for name, value in whole.state().items()}
    torch.manual_seed(at)  # the global generator does not matter
    other = make_trainer(decoder_config, config, torch.float32)
    other.load(at, kept)
    assert other.step == at
    assert_same_state(other.state(), kept)
    found = [other.take_step(draw_windows(step)) for step in range(at + 1, config.steps + 1)]
    assert found == expected[at:]
    assert_same_state(other.state(), whole.state())
    assert other.decoder.head.tied == whole.decoder.head.tied


@pytest.mark.parametrize(
    ("model", "options", "at"),
    [
        ({"tie": True, "padding_idx": 0}, {"log_interval": 1}, 4),
        ({"architecture": "gpt", "dropout": 0.2}, {"gradient_accumulation_steps": 2, "precision": "bfloat16"}, 1),
        ({"tie": True}, {"shared_second_moment": True}, 4),
    ],
    ids=["tied", "dropout", "shared moment"],
)
def test_resumed_steps_are_bit_equal(model: dict[str, Any], options: dict[str, Any], at: int) -> None:
    check_resumed(make_decoder_config(**model), make_config(**options), at)


def test_state_has_weights_and_moments() -> None:
    trainer = make_trainer(make_decoder_config(tie=True), make_config(), torch.float32)
    assert all(name.startswith("model.") for name in trainer.state())
    trainer.take_step(draw_windows(1))
    parameters = set(weights_of(trainer.decoder))
    expected = {f"optimizer.{name}.{key}" for name in parameters for key in ("exp_avg", "exp_avg_sq", "step")}
    assert set(trainer.state()) == expected | {f"model.{name}" for name in trainer.decoder.state_dict()}
    assert f"model.{HEAD}" not in trainer.state()  # tied: one copy


# ---- measurements and errors


def test_measured_steps_have_more_metrics() -> None:
    trainer = make_trainer(make_decoder_config(), make_config(log_interval=3))
    before = trainer.table.weight.detach().clone()
    lines = [trainer.take_step(draw_windows(step)) for step in range(1, 9)]
    assert [line["step"] for line in lines if "row_norm_mean" in line] == [1, 3, 6, 8]
    expected = {"row_norm_min", "row_norm_mean", "row_norm_max", "mean_vector_ratio", "lookup_gradient_norm"}
    assert expected | {"head_gradient_norm", "head_gradient_share", "logit_std"} <= set(lines[0])
    assert measure_rows(before).items() <= lines[0].items()  # measured before the step
    logits = Decoder(make_decoder_config(), seed=0).double().logits(draw_windows(1)[:1, :-1])
    assert lines[0]["logit_std"] == pytest.approx(float(logits.std().detach()), rel=1e-6)


@pytest.mark.parametrize("shape", [(ROWS, BLOCK), (ROWS + 1, BLOCK + 1), (ROWS * (BLOCK + 1),)])
def test_windows_of_the_wrong_shape(shape: tuple[int, ...]) -> None:
    trainer = make_trainer(make_decoder_config(), make_config())
    before = weights_of(trainer.decoder)
    with pytest.raises(ShapeError, match=r"expected \(4, 11\)"):
        trainer.take_step(torch.zeros(shape, dtype=torch.int64))
    assert_equal_weights(weights_of(trainer.decoder), before, rtol=0, atol=0)
    assert trainer.step == 0
