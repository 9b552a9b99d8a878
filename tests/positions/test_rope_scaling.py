"""RoPE scaling is bit-identical to transformers, with the settings of published models and with random ones."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from inlayer.errors import ConfigError, InputError
from inlayer.families import describe
from inlayer.positions import (
    DynamicNTKScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RopeParameters,
    RopeScaling,
    RotaryPositions,
    YarnScaling,
)
from inlayer.positions.rope_scaling import plain_frequencies, scaled_frequencies

SHORT = [1.0 + i / 48 for i in range(48)]
LONG = [1.0 + i * 1.3 for i in range(48)]
# Written as the published config.json files have them; "head_dim" is what the rotary part turns.
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama-3.1": {
        "head_dim": 128, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
    },
    "llama-3.2": {
        "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
    },
    "llama-4-scout": {  # nothing is blended
        "head_dim": 128, "max_position_embeddings": 10485760, "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
    },
    "qwen2.5-yarn": {
        "head_dim": 128, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
        "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"},
    },
    "deepseek-v3": {
        "head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000,
        "rope_scaling": {
            "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096, "type": "yarn",
        },
    },
    "kimi-k2": {
        "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 50000.0,
        "rope_scaling": {
            "beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "original_max_position_embeddings": 4096, "type": "yarn",
        },
    },
    "gpt-oss": {
        "head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 150000,
        "rope_scaling": {
            "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096,
            "rope_type": "yarn", "truncate": False,
        },
    },
    "yarn-mscale": {
        "head_dim": 64, "max_position_embeddings": 163840, "rope_theta": 10000.0,
        "rope_scaling": {
            "factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.3, "original_max_position_embeddings": 4096,
            "rope_type": "yarn",
        },
    },
    "phi-3-128k": {  # the lengths of the published file; 48 divisors for its heads of 96 channels
        "head_dim": 96, "max_position_embeddings": 131072, "rope_theta": 10000.0,
        "rope_scaling": {
            "long_factor": LONG, "short_factor": SHORT, "type": "longrope",
            "original_max_position_embeddings": 4096,
        },
    },
    "dynamic": {
        "head_dim": 64, "max_position_embeddings": 2048, "rope_theta": 10000.0,
        "rope_scaling": {"type": "dynamic", "factor": 2.0},
    },
    "linear": {
        "head_dim": 64, "max_position_embeddings": 2048, "rope_theta": 10000.0,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
}  # fmt: skip
LENGTHS = [1, 2048, 2049, 4096, 4097, 8000, 131072]


def as_config(settings: dict[str, Any]) -> dict[str, Any]:
    sizes = {"vocab_size": 9, "hidden_size": 128, "num_attention_heads": 1, "num_key_value_heads": 1}
    return copy.deepcopy({"model_type": "llama"} | sizes | settings)  # transformers writes into the dict it is given


def ours_of(settings: dict[str, Any], length: int) -> tuple[Tensor, float]:
    spec = describe(as_config(settings)).rotary
    assert spec is not None
    return RotaryPositions(spec.head_dim, spec.rope_parameters).inverse_frequencies(length)


def theirs_of(settings: dict[str, Any], length: int) -> tuple[Tensor, float]:
    """Call transformers as its module does: the length is a tensor, and "dynamic" keeps its initial table at first."""
    config = LlamaConfig.from_dict(as_config(settings))
    kind = config.rope_parameters["rope_type"]
    at_birth = kind == "dynamic" and length <= config.max_position_embeddings
    return ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=None if at_birth else torch.tensor(length))


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_bit_equal_with_published_settings(name: str, length: int) -> None:
    (ours, our_factor), (theirs, their_factor) = ours_of(PUBLISHED[name], length), theirs_of(PUBLISHED[name], length)
    assert ours.dtype == theirs.dtype == torch.float32
    assert torch.equal(ours, theirs)
    assert our_factor == their_factor
    other = PUBLISHED[name] | {"rope_theta": 2 * PUBLISHED[name]["rope_theta"]}
    assert not torch.equal(ours_of(other, length)[0], theirs)


def test_rope_types_are_read_as_the_right_class() -> None:
    kinds = {
        "llama-3.1": Llama3Scaling,
        "qwen2.5-yarn": YarnScaling,
        "phi-3-128k": LongRopeScaling,
        "dynamic": DynamicNTKScaling,
        "linear": LinearScaling,
    }
    for name, kind in kinds.items():
        spec = describe(as_config(PUBLISHED[name])).rotary
        assert spec is not None
        assert isinstance(spec.rope_parameters, RopeParameters)
        assert isinstance(spec.rope_parameters.scaling, kind)


@pytest.mark.parametrize("name", ["dynamic", "phi-3-128k"])
def test_stateless_unlike_transformers(name: str) -> None:
    """A short text after a long one gives the same result as before."""
    spec = describe(as_config(PUBLISHED[name])).rotary
    assert spec is not None
    rotary = RotaryPositions(spec.head_dim, spec.rope_parameters)
    short, long = torch.arange(10), torch.arange(10_000)
    first = rotary(short)[0]
    assert not torch.equal(rotary(long)[0][:10], first)
    assert torch.equal(rotary(short)[0], first)


def test_dynamic_is_plain_up_to_the_original_length() -> None:
    scaling = DynamicNTKScaling(factor=4.0, original_max_position_embeddings=100)
    plain = plain_frequencies(16, 1e4)
    assert torch.equal(scaled_frequencies(scaling, 16, 1e4, torch.tensor(100))[0], plain)
    assert not torch.equal(scaled_frequencies(scaling, 16, 1e4, torch.tensor(101))[0], plain)
    slower = scaled_frequencies(scaling, 16, 1e4, torch.tensor(400))[0]
    assert (slower[1:] < scaled_frequencies(scaling, 16, 1e4, torch.tensor(200))[0][1:]).all()


def test_linear_divides_positions() -> None:
    stretched, plain = RotaryPositions(8, RopeParameters(scaling=LinearScaling(factor=4.0))), RotaryPositions(8)
    for ours, theirs in zip(stretched(torch.arange(0, 40, 4)), plain(torch.arange(10)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def test_longrope_changes_lists_after_the_original_length() -> None:
    scaling = LongRopeScaling(
        short_factor=(1.0, 1.0), long_factor=(2.0, 4.0), original_max_position_embeddings=10, factor=4.0
    )
    short, factor = scaled_frequencies(scaling, 4, 1e4, torch.tensor(10))
    long, _ = scaled_frequencies(scaling, 4, 1e4, torch.tensor(11))
    assert torch.equal(short, plain_frequencies(4, 1e4))
    torch.testing.assert_close(long, short / torch.tensor([2.0, 4.0]))
    assert factor == math.sqrt(1 + math.log(4) / math.log(10))


def test_the_factor_multiplies_cos_and_sin() -> None:
    rotary = RotaryPositions(
        8, RopeParameters(scaling=YarnScaling(factor=4.0, original_max_position_embeddings=64, attention_factor=0.5))
    )
    cos, _ = rotary(torch.tensor([0]))
    assert torch.equal(cos, torch.full((1, 8), 0.5))


# ---- any settings

LENGTH = st.integers(2, 200_000)
FACTOR = st.floats(1.0, 128.0, allow_nan=False)
KINDS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "linear": st.fixed_dictionaries({"factor": FACTOR}),
    "dynamic": st.fixed_dictionaries({"factor": FACTOR}),
    "yarn": st.fixed_dictionaries(
        {"factor": FACTOR, "original_max_position_embeddings": LENGTH},
        optional={
            "beta_fast": st.floats(0.1, 64.0),
            "beta_slow": st.floats(0.1, 64.0),
            "mscale": st.floats(0.1, 2.0),
            "mscale_all_dim": st.floats(0.1, 2.0),
            "attention_factor": st.floats(0.1, 2.0),
            "truncate": st.booleans(),
        },
    ),
    "llama3": st.fixed_dictionaries(
        {
            "factor": FACTOR,
            "low_freq_factor": st.floats(0.5, 2.0),
            "high_freq_factor": st.floats(2.5, 16.0),
            "original_max_position_embeddings": LENGTH,
        }
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(data=st.data())
def test_bit_equal_with_random_settings(kind: str, data: st.DataObject) -> None:
    rope = data.draw(KINDS[kind]) | {"rope_type": kind}
    config = {
        "head_dim": 2 * data.draw(st.integers(2, 64)),
        "max_position_embeddings": data.draw(LENGTH),
        "rope_theta": data.draw(st.floats(2.0, 1e7)),
        "rope_parameters": rope,
    }
    length = data.draw(LENGTH)
    (ours, our_factor), (theirs, their_factor) = ours_of(config, length), theirs_of(config, length)
    assert torch.equal(ours, theirs)
    assert our_factor == their_factor


@settings(max_examples=40)
@given(data=st.data(), pairs=st.integers(1, 32), length=LENGTH, trained=LENGTH, longest=LENGTH)
def test_longrope_bit_equal_with_random_settings(
    data: st.DataObject, pairs: int, length: int, trained: int, longest: int
) -> None:
    divisors = st.lists(st.floats(0.5, 64.0), min_size=pairs, max_size=pairs)
    config = {
        "head_dim": 2 * pairs,
        "max_position_embeddings": longest,
        "rope_theta": 1e4,
        "rope_scaling": {
            "rope_type": "longrope",
            "short_factor": data.draw(divisors),
            "long_factor": data.draw(divisors),
            "original_max_position_embeddings": trained,
        },
    }
    (ours, our_factor), (theirs, their_factor) = ours_of(config, length), theirs_of(config, length)
    assert torch.equal(ours, theirs)
    assert our_factor == their_factor


# ---- errors


@pytest.mark.parametrize("factor", [0.0, -1.0, math.nan, math.inf, 1e300])
def test_factors_must_be_positive(factor: float) -> None:
    lists = {"short_factor": (1.0,), "long_factor": (1.0,)}
    with pytest.raises(ConfigError, match="'linear' has factor"):
        LinearScaling(factor=factor)
    with pytest.raises(ConfigError, match="'dynamic' has factor"):
        DynamicNTKScaling(factor=factor, original_max_position_embeddings=8)
    with pytest.raises(ConfigError, match="'yarn' has factor"):
        YarnScaling(factor=factor, original_max_position_embeddings=8)
    with pytest.raises(ConfigError, match="'llama3' has factor"):
        Llama3Scaling(factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)
    with pytest.raises(ConfigError, match="'longrope' has factor"):
        LongRopeScaling(**lists, original_max_position_embeddings=8, factor=factor)
    with pytest.raises(ConfigError, match="'yarn' has beta_fast"):
        YarnScaling(factor=2.0, original_max_position_embeddings=8, beta_fast=factor)
    with pytest.raises(ConfigError, match="'llama3' has low_freq_factor"):
        Llama3Scaling(factor=2.0, low_freq_factor=factor, high_freq_factor=4.0, original_max_position_embeddings=8)
    with pytest.raises(ConfigError, match="'longrope' has long_factor"):
        LongRopeScaling(**lists | {"long_factor": (factor,)}, original_max_position_embeddings=8, factor=2.0)


def test_settings_that_would_divide_by_zero_are_an_error() -> None:
    with pytest.raises(InputError, match=r"log\(theta\)"):
        RotaryPositions(
            8, RopeParameters(theta=1.0, scaling=YarnScaling(factor=2.0, original_max_position_embeddings=8))
        )
    with pytest.raises(ConfigError, match=r"original_max_position_embeddings 1; it must be a number in 2\.\."):
        LongRopeScaling(short_factor=(1.0,), long_factor=(1.0,), original_max_position_embeddings=1, factor=2.0)


@pytest.mark.parametrize("scaling", [RopeScaling(), {"rope_type": "linear"}])
def test_unknown_scaling_is_named(without_type_checks: None, scaling: Any) -> None:
    with pytest.raises(InputError, match=r"RoPE scaling .* is unknown; pass a method of inlayer\.positions"):
        RotaryPositions(8, RopeParameters(scaling=scaling))(torch.arange(4)[None], torch.float32)
