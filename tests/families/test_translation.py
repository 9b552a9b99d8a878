"""Config fields other than sizes: nulls, the head, and values that a model's code sets itself."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM
from transformers.models.mistral4.modeling_mistral4 import Mistral4RotaryEmbedding

from inlayer import Embeddings, describe
from inlayer.errors import ConfigError
from inlayer.positions import RopeParameters
from tests.families.references import CASES, Case, Reference, reference_config
from tests.families.survey import examine, same_bits

NULLS = [
    ("gemma2", "final_logit_softcapping"),
    ("gemma", "pad_token_id"),
    ("cohere", "pad_token_id"),
    ("olmo2", "pad_token_id"),
    ("bert", "pad_token_id"),
    ("phi3", "pad_token_id"),
    ("glm4", "pad_token_id"),
    ("gpt_oss", "rope_scaling"),
    ("llama", "rope_scaling"),
]


@pytest.mark.parametrize(("model_type", "field"), NULLS)
def test_null_means_the_same_as_in_transformers(model_type: str, field: str) -> None:
    said = {"vocab_size": 200_000, "hidden_size": 96, "num_attention_heads": 6, field: None}
    ours = describe({"model_type": model_type} | said)
    assert ours == describe(CONFIG_MAPPING[model_type](**said))


def test_null_can_differ_from_the_default() -> None:
    assert describe({"model_type": "gemma2"}).head.soft_cap == 30.0
    assert describe({"model_type": "gemma2", "final_logit_softcapping": None}).head.soft_cap is None
    assert describe({"model_type": "kimi_k2", "head_dim": None}).rotary.head_dim == 64  # from another field
    nested = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "pad_token_id": None}}
    assert describe(nested).padding_idx is None


MASKED = ["bert", "roberta", "xlm-roberta", "camembert", "mpnet", "albert", "distilbert", "electra"]


@pytest.mark.parametrize("model_type", MASKED)
def test_masked_language_heads_have_a_bias(model_type: str) -> None:
    case = next(case for case in CASES if case.model_type == model_type)
    theirs = AutoModelForMaskedLM.from_config(reference_config(case)).get_output_embeddings()
    layer = Embeddings.from_config(case.config_json)
    head = layer.head_from_config(case.config_json)
    assert (head.bias is not None) == (theirs.bias is not None)
    assert head.tied
    assert tuple(head.weight.shape) == tuple(theirs.weight.shape)


def test_untied_head_ignores_padding_targets() -> None:
    config = {"model_type": "llama", "vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "pad_token_id": 0}
    layer = Embeddings.from_config(config, seed=0)
    head = layer.head_from_config(config)
    assert not head.tied
    hidden, targets = torch.randn(4, 16), torch.tensor([0, 0, 3, 4])
    plain = torch.nn.functional.cross_entropy(head(hidden), targets, ignore_index=0)
    torch.testing.assert_close(head.loss(hidden, targets), plain)
    assert not torch.allclose(plain, torch.nn.functional.cross_entropy(head(hidden), targets))  # padding would count


def test_mpnet_always_pads_with_1() -> None:
    both = Reference(Case("mpnet", "mpnet", {"pad_token_id": 5}), torch.float32)
    ids = torch.tensor([[7, 8, 5, 1, 1]])
    theirs, _ = both.run(input_ids=ids)
    assert torch.equal(both.ours()(ids), theirs)


@pytest.mark.parametrize(
    "said",
    [
        {"rotary_emb_base": 22.0, "rope_theta": 11.0},
        {"rope_theta": 11.0},
        {"rotary_pct": 0.5, "partial_rotary_factor": 1.0},
        {"partial_rotary_factor": 1.0},
        {"rope_parameters": {"rope_theta": 33.0, "partial_rotary_factor": 0.75, "rope_type": "default"}},
    ],
)
def test_gpt_neox_reads_only_its_own_field_names(said: dict[str, Any]) -> None:
    parameters = describe({"model_type": "gpt_neox", **said}).rotary.rope_parameters
    assert isinstance(parameters, RopeParameters)
    theirs = CONFIG_MAPPING["gpt_neox"](**copy.deepcopy(said)).rope_parameters
    assert (parameters.theta, parameters.partial_rotary_factor) == (
        theirs["rope_theta"],
        theirs["partial_rotary_factor"],
    )


FULL, SLIDING = {"rope_type": "linear", "factor": 8.0}, {"rope_type": "default"}


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"rope_theta": 5e5, "rope_local_base_freq": 7e3},
        {"rope_scaling": FULL},
        {"rope_scaling": {"type": "linear", "factor": 8.0}},
        {"rope_parameters": {"full_attention": FULL, "sliding_attention": SLIDING}},
        {"rope_parameters": {"full_attention": FULL, "sliding_attention": SLIDING}, "rope_local_base_freq": 7e3},
        {"rope_parameters": {"full_attention": FULL | {"rope_theta": 5e5}}},
        {"rope_parameters": {"sliding_attention": SLIDING | {"rope_theta": 7e3}}, "rope_theta": 5e5},
        {
            "rope_parameters": {"full_attention": {"rope_type": "default"}, "sliding_attention": SLIDING},
            "rope_scaling": FULL,
        },
        {"rope_parameters": {"full_attention": None, "sliding_attention": FULL}},
    ],
)
def test_gemma3_has_two_bases_in_every_spelling(said: dict[str, Any]) -> None:
    ours = describe({"model_type": "gemma3_text", **said}).rotary.rope_parameters
    theirs = CONFIG_MAPPING["gemma3_text"](**copy.deepcopy(said)).rope_parameters
    assert isinstance(ours, dict)
    assert {name: one.theta for name, one in ours.items()} == {
        name: theirs[name]["rope_theta"] for name in ("full_attention", "sliding_attention")
    }
    for name, one in ours.items():
        assert (one.scaling is not None) == (theirs[name]["rope_type"] == "linear"), name


def test_bloom_as_it_was_published() -> None:
    """Its files have n_embed, which takes precedence over hidden_size in transformers."""
    for said in ({"n_embed": 128}, {"n_embed": 128, "hidden_size": 64}, {"hidden_size": 32}):
        theirs = CONFIG_MAPPING["bloom"](**said, vocab_size=99, n_layer=1, n_head=4)
        assert describe({"model_type": "bloom", "vocab_size": 99, "n_head": 4, **said}).n_embd == theirs.hidden_size


def test_falcon_has_rotary_positions_or_alibi() -> None:
    assert describe({"model_type": "falcon"}).positions == "rotary"
    assert describe({"model_type": "falcon", "alibi": True}).positions == "none"
    with pytest.raises(ConfigError, match="alibi"):
        describe({"model_type": "falcon", "alibi": "yes"})


def test_kimi_k3_is_described_by_its_text_part() -> None:
    text = {"hidden_size": 64, "num_attention_heads": 4}
    spec = describe({"model_type": "kimi_k3", "text_config": text})
    assert (spec.family, spec.positions, spec.n_embd) == ("kimi_linear", "none", 64)
    assert describe({"model_type": "kimi_k3", "text_config": text | {"model_type": "kimi_linear"}}) == spec


def test_mistral4_rotates_the_second_half_of_its_heads() -> None:
    """With or without the fraction, which transformers derives from the widths of both halves."""
    rope = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 1e4}
    sizes = {"model_type": "mistral4", "head_dim": 64, "qk_rope_head_dim": 16, "max_position_embeddings": 256}
    without = describe(sizes | {"rope_parameters": rope})
    assert describe(sizes | {"rope_parameters": rope | {"partial_rotary_factor": 0.25}}) == without
    assert without.rotary is not None
    assert without.rotary.rope_parameters.partial_rotary_factor == 0.25


@pytest.mark.parametrize("head_dim", [{}, {"head_dim": 32}], ids=str)
@pytest.mark.parametrize("fraction", [{}, {"partial_rotary_factor": 0.5}], ids=str)
@pytest.mark.parametrize("rope_type", ["default", "linear", "yarn"])
def test_heads_of_mistral4_have_two_parts(rope_type: str, fraction: dict[str, float], head_dim: dict[str, int]) -> None:
    """Without RoPE scaling, transformers ignores the fraction."""
    rope = {"rope_type": rope_type, "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64} | fraction
    sizes = {"hidden_size": 64, "num_attention_heads": 2, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16} | head_dim
    config, positions = sizes | {"rope_parameters": rope, "max_position_embeddings": 256}, torch.arange(8)[None]
    theirs = Mistral4RotaryEmbedding(CONFIG_MAPPING["mistral4"](**copy.deepcopy(config)))
    layer = Embeddings.from_config(config | {"model_type": "mistral4"})
    for ours, expected in zip(layer.rotary(positions), theirs(torch.zeros(1), positions), strict=True):
        assert same_bits(ours, expected)


@pytest.mark.parametrize("model_type", ["llama", "gemma3_text", "smollm3", "granite", "bert"])
def test_model_without_blocks_has_an_input_layer(model_type: str) -> None:
    assert describe({"model_type": model_type, "num_hidden_layers": 0}).vocab_size > 0
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        describe({"model_type": "llama", "num_hidden_layers": -1})


@pytest.mark.parametrize(
    ("config", "factors"),
    [
        ({"model_type": "falcon_h1", "lm_head_multiplier": 0.25}, (1.0, 0.25, 1.0)),
        ({"model_type": "minicpm3", "hidden_size": 1024, "num_attention_heads": 8}, (0.25, 1.0, 1.0)),
        ({"model_type": "minicpm3", "dim_model_base": None}, (1.0, 1.0, 1.0)),
        ({"model_type": "inkling_text"}, (1 / 24, 1.0, 1.0)),
        ({"model_type": "granite", "logits_scaling": 8.0}, (1.0, 1.0, 8.0)),
        ({"model_type": "hyperclovax", "logits_scaling": 0.125}, (1.0, 0.125, 1.0)),
    ],
)
def test_factors_of_heads(config: dict[str, Any], factors: tuple[float, float, float]) -> None:
    head = describe(config).head
    assert (head.hidden_scale, head.logit_scale, head.logit_divisor) == factors


@pytest.mark.parametrize(
    ("model_type", "kind", "setting"),
    [
        ("modernbert", "masked", {"norm_bias": True}),
        ("modernbert", "masked", {"decoder_bias": False}),
        ("modernbert-decoder", "causal", {"norm_bias": True, "decoder_bias": False}),
        ("trocr", "causal", {"layernorm_embedding": False}),
        ("qwen4_exp_text", "causal", {"seed": 2**63 + 5}),
        ("pegasus", "seq2seq", {}),  # an encoder does not scale inputs_embeds, a decoder alone does
    ],
    ids=str,
)
def test_settings_that_change_layer_or_head(model_type: str, kind: str, setting: dict[str, Any]) -> None:
    outcome = examine((model_type, kind), **setting)
    assert (outcome.outcome, outcome.reason) == ("equal", "")
    assert outcome.logits
