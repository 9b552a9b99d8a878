"""What a config says beyond sizes: nulls, the head at the other end, and what a model's code fixes by itself."""

from __future__ import annotations

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForMaskedLM

from inlayer import Embeddings, describe
from inlayer.positions import Angles
from tests.families.references import CASES, Case, Reference, reference_config

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
def test_null_means_what_it_means_to_transformers(model_type: str, field: str) -> None:
    said = {"vocab_size": 200_000, "hidden_size": 96, "num_attention_heads": 6, field: None}
    ours = describe({"model_type": model_type} | said)
    assert ours == describe(CONFIG_MAPPING[model_type](**said))


def test_null_can_differ_from_the_default() -> None:
    assert describe({"model_type": "gemma2"}).head.soft_cap == 30.0
    assert describe({"model_type": "gemma2", "final_logit_softcapping": None}).head.soft_cap is None
    assert describe({"model_type": "kimi_k2", "head_dim": None}).rotary.head_dim == 64  # that is another field's
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


def test_an_untied_head_ignores_the_padding_of_its_config() -> None:
    config = {"model_type": "llama", "vocab_size": 50, "hidden_size": 16, "num_attention_heads": 2, "pad_token_id": 0}
    layer = Embeddings.from_config(config, seed=0)
    head = layer.head_from_config(config)
    assert not head.tied
    hidden, targets = torch.randn(4, 16), torch.tensor([0, 0, 3, 4])
    plain = torch.nn.functional.cross_entropy(head(hidden), targets, ignore_index=0)
    torch.testing.assert_close(head.loss(hidden, targets), plain)
    assert not torch.allclose(plain, torch.nn.functional.cross_entropy(head(hidden), targets))  # padding would count


def test_mpnet_pads_with_1_whatever_its_config_says() -> None:
    both = Reference(Case("mpnet", "mpnet", {"pad_token_id": 5}), torch.float32)
    ids = torch.tensor([[7, 8, 5, 1, 1]])
    theirs, _ = both.run(input_ids=ids)
    assert torch.equal(both.ours()(ids), theirs)


def test_gpt_neox_reads_its_own_name_of_theta_first() -> None:
    config = {"model_type": "gpt_neox", "rotary_emb_base": 22.0, "rope_theta": 11.0}
    angles = describe(config).rotary.angles
    assert isinstance(angles, Angles)
    assert angles.theta == 22.0 == CONFIG_MAPPING["gpt_neox"](**config).rope_parameters["rope_theta"]
