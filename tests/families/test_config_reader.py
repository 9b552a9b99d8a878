"""Damaged, missing and hostile configs: always a one-line InlayerError."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from inlayer import Embeddings, describe
from inlayer.errors import ConfigError, DtypeError, InlayerError, MissingFileError
from inlayer.families import FAMILIES, LayerSpec
from inlayer.families.config_reader import MAX_CONFIG
from inlayer.positions import RopeParameters, RotaryPositions

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 99,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
}
ROBERTA = LLAMA | {"model_type": "roberta", "type_vocab_size": 2}
LONGROPE = {"type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}


def refusal(config: object, kind: type[Exception] = ConfigError) -> str:
    """The message of the error for this config, checked to be one line and short."""
    with pytest.raises(kind) as caught:
        Embeddings.from_config(config, device="meta")
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 1000
    return message


def test_control_valid_configs_are_read() -> None:
    assert describe(LLAMA).n_embd == describe(ROBERTA).n_embd == 64


# ---- files


def test_missing_file(tmp_path: Path) -> None:
    message = refusal(tmp_path / "nowhere.json", MissingFileError)
    assert "no config at" in message
    assert "nowhere.json" in message
    with pytest.raises(FileNotFoundError):
        describe(str(tmp_path / "nowhere.json"))


def test_folder_without_config(tmp_path: Path) -> None:
    assert str(tmp_path / "config.json") in refusal(tmp_path, MissingFileError)


def test_file_and_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert describe(tmp_path) == describe(tmp_path / "config.json") == describe(str(tmp_path)) == describe(LLAMA)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"no json",
        b'{"model_type": "llama",}',
        b"\xff\xfe\x00",
        b"\x80abc",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"vocab_size": ' + b"9" * 10_000 + b"}",
    ],
    ids=["empty", "cut", "text", "comma", "bom", "not utf-8", "deep list", "deep object", "10,000 digits"],
)
def test_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    assert re.search("is (not valid JSON|empty|nested too deeply)", refusal(tmp_path))


@pytest.mark.parametrize("value", ["[]", "3", "null", '"llama"', "true"])
def test_json_that_is_not_an_object_is_an_error(tmp_path: Path, value: str) -> None:
    (tmp_path / "config.json").write_text(value)
    assert "not a JSON object" in refusal(tmp_path)


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(MAX_CONFIG + 1)
    assert "is 16,777,217 bytes" in refusal(tmp_path)


def test_config_text_instead_of_a_path_is_an_error() -> None:
    """The config's text, passed as a path, is too long for a file name."""
    assert "cannot be read as a config path" in refusal(json.dumps(LLAMA | {"note": "x" * 5000}))


@pytest.mark.parametrize("thing", [None, 3, [LLAMA], b"config.json", object()])
def test_values_that_are_not_a_config_are_an_error(thing: object) -> None:
    assert "pass a dict" in refusal(thing, DtypeError)


def test_sample_name_is_answered_with_load() -> None:
    assert "for a sample or a hub id, use inlayer.load(source).spec" in refusal("default", MissingFileError)


# ---- model types


@pytest.mark.parametrize("model_type", ["gpt5", "", 3, ["llama"], {"llama": 1}, True, "x" * 10_000, "a\nb"])
def test_unknown_model_type(model_type: object) -> None:
    message = refusal(LLAMA | {"model_type": model_type})
    assert "unknown model type" in message
    assert f"inlayer.families.FAMILIES lists all {len(FAMILIES)}" in message
    assert "inlayer.Embeddings(vocab_size, n_embd" in message
    assert len(message) < 300


@pytest.mark.parametrize(("model_type", "similar"), [("gpt5", "gpt2"), ("qwen4", "qwen3"), ("Llama", "llama")])
def test_unknown_model_type_names_similar_ones(model_type: str, similar: str) -> None:
    assert re.search(f"similar ones are .*{similar}", refusal(LLAMA | {"model_type": model_type}))


@pytest.mark.parametrize("model_type", ["foo", "zzz", "x"])
def test_unknown_model_type_is_close_to_none(model_type: str) -> None:
    assert f"unknown model type '{model_type}' (inlayer.families" in refusal({"model_type": model_type})


def test_no_model_type() -> None:
    for config in ({}, {"text_config": {}}, LLAMA | {"model_type": None}):
        assert refusal(config) == (
            "the config has no model_type, so the layer is unknown; set it to one of the "
            f"{len(FAMILIES)} supported types (inlayer.families.FAMILIES)"
        )


def test_nested_text_config() -> None:
    """A multimodal model: the nested text config decides."""
    text = LLAMA | {"rope_theta": 5e5}
    outer = {"model_type": "llava", "vision_config": {"hidden_size": 7}, "text_config": text}
    assert describe(outer) == describe(text)
    assert describe(outer | {"model_type": "some_new_vlm"}) == describe(text)
    assert describe(outer | {"text_config": text | {"model_type": None}}) == describe(text)  # llava's own default
    assert describe(outer | {"tie_word_embeddings": True}).head.tied is True
    assert describe(outer | {"text_config": text | {"vocab_size": 123}}).vocab_size == 123


@pytest.mark.parametrize("text", [None, 3, "llama", []])
def test_text_config_missing(text: object) -> None:
    assert "needs its text part in text_config" in refusal({"model_type": "llava", "text_config": text})


def test_nested_unknown_type() -> None:
    nested = {"model_type": "new", "text_config": {"model_type": "newer"}}
    assert "unknown model type 'newer'" in refusal(nested)
    twice = refusal({"model_type": "gemma4", "text_config": {"model_type": "gemma4", "text_config": {}}})
    assert "unknown model type 'gemma4'; similar ones are gemma" in twice
    assert "are gemma4," not in twice


# ---- fields

WRONG_SIZES = ["64", 64.0, True, -1, 0, 10**12, 10**400, math.nan, math.inf, [64], {"a": 64}]


@pytest.mark.parametrize("value", WRONG_SIZES, ids=str)
@pytest.mark.parametrize("name", ["vocab_size", "hidden_size", "num_attention_heads", "max_position_embeddings"])
def test_wrong_sizes(name: str, value: object) -> None:
    assert f"the config's {name} is" in refusal(LLAMA | {name: value})


@pytest.mark.parametrize("value", ["0.1", True, math.nan, math.inf, -math.inf, 10**400, [1], {}], ids=str)
@pytest.mark.parametrize("name", ["initializer_range", "rope_theta"])
def test_numbers_that_are_invalid_are_rejected(name: str, value: object) -> None:
    assert f"the config's {name} is" in refusal(LLAMA | {name: value})


def test_nan_in_a_file(tmp_path: Path) -> None:
    """Python's json module accepts NaN and Infinity, which are not valid JSON."""
    (tmp_path / "config.json").write_text('{"model_type": "llama", "rope_theta": NaN}')
    assert "finite" in refusal(tmp_path)


@pytest.mark.parametrize("value", ["true", 1, 0, []])
def test_wrong_flags(value: object) -> None:
    assert "expected true or false" in refusal(LLAMA | {"tie_word_embeddings": value})


def test_sizes_with_an_absurd_product_are_an_error() -> None:
    huge = {"vocab_size": 2**31 - 1, "hidden_size": 2**31 - 1}
    assert "2,147,483,647 x 2,147,483,647" in refusal(LLAMA | huge)
    assert "table of" in refusal(ROBERTA | {"hidden_size": 2**20, "type_vocab_size": 2**31 - 1})
    assert "table of" in refusal(ROBERTA | {"hidden_size": 2**20, "max_position_embeddings": 2**31 - 1})
    assert "table of" in refusal({"model_type": "albert", "embedding_size": 2**31 - 1, "hidden_size": 2**31 - 1})


@pytest.mark.parametrize("pad", [99, 10**12, 10**400])
def test_pad_token_outside_the_table(pad: int) -> None:
    assert "is outside its table of 99 rows" in refusal(LLAMA | {"pad_token_id": pad})


@pytest.mark.parametrize("pad", ["1", 1.0, True, [1]])
def test_pad_token_of_the_wrong_type(pad: object) -> None:
    assert "pad_token_id" in refusal(LLAMA | {"pad_token_id": pad})


def test_pad_token_absent() -> None:
    assert describe(LLAMA | {"pad_token_id": None}).padding_idx is None
    assert describe(LLAMA | {"pad_token_id": -1}).padding_idx is None  # the first Llama's way to say none
    assert "no pad_token_id" in refusal(ROBERTA | {"pad_token_id": -1})


def test_pad_token_outside_the_positions() -> None:
    """RoBERTa's padding id is also an index into its position table."""
    assert "padding_idx 70 is outside the 64 rows" in refusal(ROBERTA | {"pad_token_id": 70})


def test_null_counts_as_missing() -> None:
    nulls = dict.fromkeys(["rope_theta", "rope_scaling", "rope_parameters", "head_dim", "initializer_range"])
    assert describe(LLAMA | nulls) == describe(LLAMA)
    assert describe(LLAMA | {"rope_scaling": {"type": None, "factor": None}}) == describe(LLAMA)


def test_more_heads_than_channels() -> None:
    assert "head_dim is 0" in refusal(LLAMA | {"num_attention_heads": 65})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "codegen", "n_embd": 1}, "smaller than the number of attention heads"),
        ({"model_type": "inkling_text", "logits_mup_width_multiplier": 0}, "logits_mup_width_multiplier is 0"),
        ({"model_type": "bloom", "n_head": 10**9}, "1,000,000,000 heads with ALiBi; expected 1..65,536"),
    ],
)
def test_numbers_that_later_steps_divide_by_or_allocate(changes: dict[str, Any], message: str) -> None:
    assert message in refusal(changes)


def test_sinusoidal_positions_are_precomputed_up_to_a_limit() -> None:
    config = {"model_type": "ctrl", "vocab_size": 9, "n_embd": 1000, "n_positions": 10**9}
    layer = Embeddings.from_config(config, device="meta")
    assert layer.position_embedding is not None
    assert layer.position_embedding.table.numel() <= 2**22
    assert layer.block_size == 10**9


def test_odd_head_dim_is_an_error() -> None:
    assert "in pairs" in refusal(LLAMA | {"head_dim": 5})


def test_deeply_nested_value_is_reported_in_one_line() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"a": deep}
    for name in ("model_type", "vocab_size", "rope_theta", "tie_word_embeddings", "pad_token_id"):
        refusal(LLAMA | {name: deep})
    refusal(LLAMA | {"rope_scaling": {"type": deep, "factor": 2.0}})


# ---- rope


@pytest.mark.parametrize("kind", ["magic", "", 3, True, ["yarn"]])
def test_unknown_rope_type(kind: object) -> None:
    message = refusal(LLAMA | {"rope_scaling": {"rope_type": kind, "factor": 2.0}})
    assert "supported types: default, linear, dynamic, yarn, llama3, longrope" in message


@pytest.mark.parametrize("rope", ["yarn", 3, True, [1], [{"type": "yarn"}]])
def test_rope_scaling_of_the_wrong_type(rope: object) -> None:
    assert "rope_scaling is a" in refusal(LLAMA | {"rope_scaling": rope})


@pytest.mark.parametrize(
    "damage",
    [
        {"short_factor": [1.0] * 7},
        {"long_factor": [1.0] * 9},
        {"short_factor": []},
        {"short_factor": None},
        {"long_factor": "1.0"},
        {"long_factor": [1.0] * 7 + ["1"]},
        {"long_factor": [1.0] * 7 + [True]},
        {"long_factor": [1.0] * 7 + [math.nan]},
        {"long_factor": [1.0] * 7 + [0]},
        {"long_factor": [1.0] * 7 + [10**400]},
    ],
    ids=str,
)
def test_longrope_lists(damage: dict[str, Any]) -> None:
    assert describe(LLAMA | {"rope_scaling": LONGROPE}).rotary is not None
    refusal(LLAMA | {"rope_scaling": LONGROPE | damage})


@pytest.mark.parametrize(
    "rope",
    [
        {"type": "linear"},
        {"type": "linear", "factor": "2"},
        {"type": "linear", "factor": 0},
        {"type": "dynamic", "factor": -1.0},
        {"type": "llama3", "factor": 8.0},
        {"type": "llama3", "factor": 8.0, "low_freq_factor": 0.0, "high_freq_factor": 1.0},
        {"type": "yarn", "factor": math.inf},
        {"type": "yarn", "factor": 2.0, "beta_fast": -3.0},
        {"type": "yarn", "factor": 2.0, "truncate": "no"},
        {"type": "yarn", "factor": 2.0, "rope_theta": 1.0},
        {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0},
        {"type": "default", "rope_theta": -1.0},
        {"type": "default", "rope_theta": 0},
        {"full_attention": {"type": "magic"}},
    ],
    ids=str,
)
def test_invalid_rope_settings_are_an_error(rope: dict[str, Any]) -> None:
    refusal(LLAMA | {"rope_scaling": rope})


def test_partial_rotary_factor_outside_0_to_1_is_an_error() -> None:
    assert "rotated fraction of a head" in refusal(LLAMA | {"model_type": "stablelm", "partial_rotary_factor": 2.0})


def test_t5_head_scale_in_both_spellings() -> None:
    """In older configs, a tied head implies the scale. transformers 5 always ties and has a separate field."""
    from transformers import T5Config

    for tied in (True, False):
        in_file = describe({"model_type": "t5", "tie_word_embeddings": tied}).head.hidden_scale
        in_object = describe(T5Config(tie_word_embeddings=tied)).head.hidden_scale
        assert in_file == in_object == (512**-0.5 if tied else 1.0)


# ---- anything at all

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 1, 2, 3, 64, 2**31 - 1, 2**31, 2**63, 10**12, 10**400])
    | st.floats()
    | st.sampled_from([0.0, 0.5, 1.0, 1e-300, 1e300])
    | st.text(max_size=8)
    | st.sampled_from(["yarn", "linear", "dynamic", "llama3", "longrope", "default", "full_attention", "llama"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
)
ROPE_FIELDS = [
    "rope_type", "type", "factor", "rope_theta", "partial_rotary_factor", "original_max_position_embeddings",
    "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate", "low_freq_factor",
    "high_freq_factor", "short_factor", "long_factor", "full_attention", "sliding_attention",
]  # fmt: skip
FIELDS = [
    "model_type", "vocab_size", "hidden_size", "n_embd", "d_model", "num_attention_heads", "head_dim",
    "qk_rope_head_dim", "max_position_embeddings", "n_positions", "original_max_position_embeddings", "pad_token_id",
    "type_vocab_size", "embedding_size", "word_embed_proj_dim", "initializer_range", "layer_norm_eps",
    "layer_norm_epsilon", "hidden_dropout_prob", "embd_pdrop", "dropout", "dropout_rate", "embedding_multiplier",
    "tie_word_embeddings", "logit_scale", "logits_scaling", "final_logit_softcapping", "scale_decoder_outputs",
    "rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq", "rotary_pct", "rotary_emb_base",
    "partial_rotary_factor", "text_config",
]  # fmt: skip
ROPE = st.dictionaries(st.sampled_from(ROPE_FIELDS), JSON, max_size=4)
ROPES: list[dict[str, Any]] = [
    {"type": "linear", "factor": 2.0},
    {"type": "dynamic", "factor": 2.0},
    {"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32},
    {"type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    LONGROPE,
]


def only_our_errors(call: Callable[[], Any]) -> Any:
    """The result of a call, or None for a one-line InlayerError; any other exception fails the test."""
    try:
        return call()
    except InlayerError as error:
        message = str(error)
    assert "\n" not in message
    assert len(message) < 2000
    return None


def check_anything(config: dict[str, Any]) -> bool:
    spec = only_our_errors(lambda: describe(config))
    assert spec is None or isinstance(spec, LayerSpec)
    layer = only_our_errors(lambda: Embeddings.from_config(config, device="meta"))
    if layer is None:
        return False
    assert spec is not None
    only_our_errors(lambda: layer.head_from_config(config))
    if isinstance(layer.position_embedding, RotaryPositions):
        parameters = layer.position_embedding.rope_parameters
        for layer_type in [None] if isinstance(parameters, RopeParameters) else parameters:
            cos, _ = layer.rotary(torch.tensor([[0, 1, 200_000]]), layer_type)
            assert cos.isfinite().all()
    return True


@pytest.mark.slow
@settings(max_examples=400)
@given(
    model_type=st.sampled_from(sorted(FAMILIES)),
    damage=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1, max_size=2),
)
def test_any_value_in_any_field(model_type: str, damage: dict[str, Any]) -> None:
    check_anything(LLAMA | {"model_type": model_type} | damage)


@pytest.mark.slow
@settings(max_examples=300)
@given(
    model_type=st.sampled_from(["llama", "phi3", "gemma3_text", "gpt_oss", "stablelm"]),
    rope=st.sampled_from(ROPES),
    damage=ROPE,
    name=st.sampled_from(["rope_scaling", "rope_parameters"]),
)
def test_any_value_in_any_rope_setting(
    model_type: str, rope: dict[str, Any], damage: dict[str, Any], name: str
) -> None:
    check_anything(LLAMA | {"model_type": model_type, name: copy.deepcopy(rope) | damage})


@pytest.mark.slow
@settings(max_examples=100)
@given(config=st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=5), text=JSON | st.none())
def test_any_object(config: dict[str, Any], text: object) -> None:
    check_anything(config | ({"text_config": text} if text is not None else {}))


@pytest.mark.slow
@settings(max_examples=100)
@given(content=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_file(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any_config.json"
    path.write_bytes(content)
    only_our_errors(lambda: describe(path))


def test_control_fuzzing_reaches_layers() -> None:
    assert check_anything(LLAMA)
    assert check_anything(LLAMA | {"rope_scaling": ROPES[2]})
    assert not check_anything(LLAMA | {"vocab_size": "99"})
