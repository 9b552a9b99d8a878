"""Training configuration: validation, derived values, presets, JSON, and the command-line flags made from it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

import inlayer
from inlayer.cli.train import option_help, parameters
from inlayer.errors import ConfigError, InputError
from inlayer.training.config import (
    PRESETS,
    DecoderConfig,
    TrainConfig,
    config_from_json,
    config_to_json,
    is_due,
)
from inlayer.training.decoder import Decoder
from inlayer.training.lr_schedule import count_warmup_steps, learning_rate_at


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0), ("steps", True), ("batch_size", 0), ("gradient_accumulation_steps", -1), ("warmup_steps", -1),
        ("eval_interval", -1), ("eval_sequences", 0), ("save_interval", -1), ("log_interval", -1), ("threads", 0),
        ("learning_rate", -1e-3), ("learning_rate", math.nan), ("learning_rate", math.inf),
        ("embedding_lr_scale", -1.0), ("head_lr_scale", -1.0), ("weight_decay", -0.1),
        ("embedding_weight_decay", math.nan), ("max_grad_norm", -1.0),
        ("z_loss", -1e-4), ("adam_beta1", 1.0), ("adam_beta2", 1.5), ("adam_epsilon", 0.0), ("min_lr_ratio", 2.0),
        ("gradient_accumulation_steps", 3), ("lr_schedule", "cosin"), ("precision", "float16"),
        ("dropout", 1.5), ("dropout", math.nan), ("seed", -1), ("seed", 2**63),
        ("validation_fraction", 0.6), ("preset", "huge"), ("architecture", "rnn"), ("dropout", 1.0), ("n_embd", 0),
        ("n_head", 7), ("parallel", "both"), ("device", "gpu"), ("init_std", 0.0), ("learning_rate", 10**400),
    ],
)  # fmt: skip
def test_bad_value_names_the_field(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name):
        TrainConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tokenizer": "bytes", "vocab_size": 300}, "vocab_size is 300, but the tokenizer 'bytes' determines it"),
        ({"head_lr_scale": 0.5}, "a tied head shares the table's weights"),
        ({"architecture": "gpt", "positions": "rotary"}, "does not work with gpt; use learned or sinusoidal"),
        ({"architecture": "gpt", "n_kv_head": 2}, "only llama has grouped-query attention"),
    ],
)
def test_contradictions_are_reported(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainConfig(**values)


def test_vocabulary_too_small_for_bytes() -> None:
    with pytest.raises(InputError, match=r"vocab_size is 10; .* it must be in 258\.\.\d{1,3},\d{3}"):
        TrainConfig(vocab_size=10)


# ---- derived values


def test_defaults_of_a_tied_and_an_untied_model() -> None:
    tied, untied = TrainConfig(), TrainConfig(tie=False)
    found = [(made.init, made.init_std, made.input_scale, made.output_scale) for made in map(decoder, (tied, untied))]
    assert found == [("normal", 0.02, 50.0, 3.0), ("normal", 0.02, 50.0, 1.0)]
    own = decoder(TrainConfig(input_scale=2.0, output_scale=0.5, init_std=0.1))
    assert (own.input_scale, own.output_scale, own.init_std) == (2.0, 0.5, 0.1)


def decoder(config: TrainConfig) -> DecoderConfig:
    return config.decoder_config(256)


def test_resolved_values() -> None:
    values = TrainConfig(architecture="gpt", preset="toy", tokenizer="bytes", steps=100).resolved()
    assert (values["n_embd"], values["n_kv_head"], values["n_inner"]) == (64, 4, 256)
    assert (values["positions"], values["warmup_steps"], values["vocab_size"]) == ("learned", 10, None)
    assert set(values) == {setting.name for setting in fields(TrainConfig)}
    assert TrainConfig().resolved()["vocab_size"] == 4096


def test_small_text_has_fewer_steps_and_shorter_windows() -> None:
    """The steps read a small text about 20 times, and validation needs one window of the held-out text."""
    toy = TrainConfig(preset="toy", batch_size=4)
    sizes = {text: (fitted.block_size, fitted.steps) for text in TEXTS if (fitted := toy.fit_to_corpus(*text))}
    assert sizes == {
        (10**9, 10**7): (64, 600), (7_680, 400): (64, 600), (5_120, 300): (64, 400), (950, 50): (49, 96),
        (500, 17): (16, 156), (500, 16): (64, 50), (40, 0): (39, 50), (3, 0): (16, 50),
    }  # fmt: skip
    assert toy.total_steps == toy.resolved()["steps"] == 600
    given = replace(toy, steps=7, block_size=8)
    assert given.fit_to_corpus(950, 50) == given
    assert toy.fit_to_corpus(950, 50) == replace(toy, block_size=49, steps=96)


TEXTS = [(10**9, 10**7), (7_680, 400), (5_120, 300), (950, 50), (500, 17), (500, 16), (40, 0), (3, 0)]


def test_sizes_override_the_preset() -> None:
    config = TrainConfig(preset="small", n_layer=1, n_kv_head=1, dropout=0.1).decoder_config(300)
    assert (config.vocab_size, config.n_layer, config.kv_heads, config.dropout) == (300, 1, 1, 0.1)
    assert config.n_embd == PRESETS["small"]["n_embd"]


def test_learning_rate_schedules() -> None:
    cosine = TrainConfig(steps=110, warmup_steps=10, learning_rate=1.0, min_lr_ratio=0.1)
    assert [learning_rate_at(cosine, step) for step in (1, 5, 10)] == pytest.approx([0.1, 0.5, 1.0])
    assert [learning_rate_at(cosine, step) for step in (35, 60, 110)] == pytest.approx(
        [0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2, 0.55, 0.1]
    )
    linear = replace(cosine, lr_schedule="linear")
    assert [learning_rate_at(linear, step) for step in (1, 10, 60, 110)] == pytest.approx([0.1, 1.0, 0.55, 0.1])
    constant = replace(cosine, lr_schedule="constant")
    assert [learning_rate_at(constant, step) for step in (1, 10, 11, 110)] == pytest.approx([0.1, 1.0, 1.0, 1.0])


def test_learning_rate_with_very_short_or_long_warmup() -> None:
    assert (
        learning_rate_at(
            TrainConfig(steps=1, warmup_steps=0, learning_rate=1.0, min_lr_ratio=0.0, lr_schedule="linear"), 1
        )
        == 0
    )
    assert learning_rate_at(TrainConfig(steps=4, warmup_steps=0, learning_rate=1.0), 1) < 1.0
    longer = TrainConfig(steps=4, warmup_steps=8, learning_rate=1.0)
    assert [learning_rate_at(longer, step) for step in (1, 4)] == [0.125, 0.5]
    assert learning_rate_at(TrainConfig(steps=4, warmup_steps=4, learning_rate=1.0), 4) == 1.0
    assert [count_warmup_steps(TrainConfig(steps=steps)) for steps in (5, 300, 9000)] == [0, 30, 50]


def test_periodic_events_happen_after_the_last_step() -> None:
    config = TrainConfig(steps=10)
    assert [step for step in range(1, 11) if is_due(config, 4, step)] == [4, 8, 10]
    assert [step for step in range(1, 11) if is_due(config, 0, step)] == [10]


# ---- presets


def count_parameters(name: str, architecture: str, vocab_size: int, *, tie: bool) -> int:
    config = TrainConfig(preset=name, architecture=architecture, tie=tie).decoder_config(vocab_size)
    return sum(parameter.numel() for parameter in Decoder(config, device="meta").parameters())


@pytest.mark.parametrize(("name", "published"), [("base-768", 124_439_808), ("large-1024", 354_823_168)])
def test_large_presets_have_the_sizes_of_gpt2(name: str, published: int) -> None:
    assert count_parameters(name, "gpt", 50257, tie=True) == published
    assert count_parameters(name, "gpt", 50257, tie=False) == published + 50257 * PRESETS[name]["n_embd"]


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_presets_grow_and_the_smallest_runs(architecture: str) -> None:
    counts = [count_parameters(name, architecture, 256, tie=True) for name in PRESETS]
    assert counts == sorted(counts)
    assert counts[0] < 2e5
    config = TrainConfig(preset="toy", architecture=architecture).decoder_config(256)
    assert Decoder(config, seed=0).logits(torch.zeros(1, 3, dtype=torch.int64)).shape == (1, 3, 256)


# ---- JSON and flags


def test_config_survives_json() -> None:
    config = TrainConfig(files=("a", "b"), out="x", learning_rate=1 / 3, adam_beta2=2 / 3, parallel="vocab")
    data = config_to_json(config)
    assert not {"out", "parallel", "device"} & set(json.loads(data))
    assert config_from_json(data, out="x", parallel="vocab") == config
    twice = data.replace(b'"steps"', b'"steps": 3, "steps"')
    for wrong in (b'{"format": 99}', b"[]", b"{", twice, b'{"a":' * 100_000):
        with pytest.raises(
            ValueError, match=r"format|Expecting|contains a list|'steps' occurs twice|nested too deeply"
        ):
            config_from_json(wrong)


def test_every_field_is_a_flag_with_help() -> None:
    names = [parameter.name for parameter in parameters()]
    assert names == [*(setting.name for setting in fields(TrainConfig)), "resume", "as_json"]
    for setting in fields(TrainConfig):
        if setting.name != "files":
            shown = option_help(setting.name, setting.default)
            assert re.search(r"^[\w\"].+\.( \\\[default: .+\])?$", shown)
            assert shown.endswith("]")  # the default, also if it is derived from other fields
            assert all(choice in shown for choice in setting.metadata.get("choices", ()))


def test_config_is_public() -> None:
    assert inlayer.TrainConfig is TrainConfig
