"""Statements of 002_a75f724ed08d4a84.txt about initialization, and what it gets wrong about real models."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from inlayer import Embeddings, Head, describe

V, D = 100_352, 4_096  # an exercise size: no published model has it


def test_every_token_has_a_row() -> None:
    layer = Embeddings(20, 6, padding_idx=3, seed=0)
    assert layer.token_embedding.weight.shape == (20, 6)
    assert layer.token_embedding.weight.requires_grad
    assert (layer.vocab_size, layer.n_embd, layer.padding_idx) == (20, 6, 3)


def test_t_tokens_give_t_rows() -> None:
    layer = Embeddings(20, 6, seed=0)
    x = torch.tensor([4, 0, 19])
    assert torch.equal(layer(x), layer.token_embedding.weight[x])
    assert layer(x[None]).shape == (1, 3, 6)


def test_initialized_with_std_002() -> None:
    weight = Embeddings(2_000, 256, seed=0).token_embedding.weight.detach()
    assert abs(float(weight.mean())) < 1e-3
    assert abs(float(weight.std()) - 0.02) < 1e-3
    # normal, not uniform: 68 and 95 of a hundred are within one and two standard deviations
    assert abs(float((weight.abs() < 0.02).float().mean()) - 0.6827) < 0.01
    assert abs(float((weight.abs() < 0.04).float().mean()) - 0.9545) < 0.01


def test_nn_embedding_draws_a_standard_normal() -> None:
    """The document attributes the 0.02 to nn.Embedding, which draws N(0, 1)."""
    torch.manual_seed(0)
    theirs = nn.Embedding(2_000, 64).weight.detach()
    assert abs(float(theirs.std()) - 1.0) < 0.02
    ours = Embeddings(2_000, 64, init="embedding", seed=0).token_embedding.weight.detach()
    assert abs(float(ours.std()) - 1.0) < 0.02


def test_model_init_must_zero_the_padding_row_again() -> None:
    """The 0.02 comes from normal_ on the whole table, which overwrites the padding row that nn.Embedding zeroed."""
    theirs = nn.Embedding(10, 4, padding_idx=0)
    assert not theirs.weight[0].any()
    nn.init.normal_(theirs.weight, std=0.02)
    assert theirs.weight[0].all()
    ours = Embeddings(10, 4, padding_idx=0)
    ours.token_embedding.reset_parameters()
    assert not ours.token_embedding.weight[0].any()
    assert ours.token_embedding.weight[1:].all()


def test_transformers_draws_002_and_zeroes_the_padding_row() -> None:
    from transformers import LlamaConfig, LlamaModel

    sizes = {"num_hidden_layers": 1, "intermediate_size": 8, "num_attention_heads": 2, "pad_token_id": 3}
    theirs = LlamaModel(LlamaConfig(vocab_size=500, hidden_size=64, **sizes)).get_input_embeddings().weight.detach()
    assert abs(float(theirs.std()) - 0.02) < 2e-3
    assert not theirs[3].any()


def test_padding_row_is_zero_and_gets_no_gradient() -> None:
    layer = Embeddings(10, 4, padding_idx=0, seed=0)
    assert torch.equal(layer.token_embedding.weight[0], torch.zeros(4))
    layer(torch.tensor([[1, 0, 2, 0]])).sum().backward()
    grad = layer.token_embedding.weight.grad
    assert grad is not None
    assert not grad[0].any()
    assert grad[1].all()


def test_tied_weights_are_one_table() -> None:
    layer, head = Embeddings(10, 4, seed=0), Head(4, 10)
    layer.tie(head)
    assert head.weight is layer.token_embedding.weight
    hidden = torch.randn(2, 4)
    assert torch.equal(head(hidden), hidden @ layer.token_embedding.weight.T)


def train(logits_of: object, weight: Tensor) -> None:
    optimizer = torch.optim.AdamW([weight], lr=0.1)
    ids = torch.tensor([[1, 2, 0, 3]])
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(logits_of(ids).flatten(0, 1), torch.tensor([2, 3, 1, 1])).backward()
        optimizer.step()


def test_padding_idx_alone_does_not_protect_a_tied_table() -> None:
    """The gradient of the head reaches every row: plain torch loses the zero row in one step, ours keeps it."""
    plain = nn.Embedding(6, 4, padding_idx=0)
    plain_head = nn.Linear(4, 6, bias=False)
    plain_head.weight = plain.weight
    train(lambda ids: plain_head(plain(ids) + 1), plain.weight)
    assert plain.weight[0].any()

    ours, head = Embeddings(6, 4, padding_idx=0), Head(4, 6)
    ours.tie(head)
    initial = ours.token_embedding.weight.detach().clone()
    train(lambda ids: head(ours(ids) + 1), ours.token_embedding.weight)
    assert torch.equal(ours.token_embedding.weight[0], torch.zeros(4))
    assert not torch.equal(ours.token_embedding.weight, initial)


def test_memory_of_the_exercise() -> None:
    """About 400 million parameters and 1.6 GB in float32."""
    weight = Embeddings(V, D, device="meta").token_embedding.weight
    assert weight.numel() == 411_041_792
    assert round(weight.nbytes / 1e9, 2) == 1.64


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163840,
    "initializer_range": 0.02,
    "rope_theta": 10000,
    "tie_word_embeddings": False,
}
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2",
    "vocab_size": 163840,
    "num_attention_heads": 64,
    "max_position_embeddings": 131072,
    "rope_theta": 50000.0,
}


@pytest.mark.parametrize(("config", "rows", "gigabytes"), [(DEEPSEEK_V3, 129_280, 1.85), (KIMI_K2, 163_840, 2.35)])
def test_true_sizes_in_bfloat16(config: dict[str, object], rows: int, gigabytes: float) -> None:
    weight = Embeddings.from_config(config, device="meta", dtype=torch.bfloat16).token_embedding.weight
    assert weight.shape == (rows, 7_168)
    assert round(weight.nbytes / 1e9, 2) == gigabytes


@pytest.mark.parametrize("config", [DEEPSEEK_V3, KIMI_K2])
def test_both_are_untied(config: dict[str, object]) -> None:
    """_tied_weights_keys names what could be tied; the config says that it is not."""
    from transformers import DeepseekV3ForCausalLM

    assert DeepseekV3ForCausalLM._tied_weights_keys
    assert describe(config).head.tied is False
    assert describe(config | {"tie_word_embeddings": True}).head.tied is True
    layer = Embeddings.from_config(config, device="meta")
    head = layer.head_from_config(config)
    assert not head.tied
    assert head.weight is not layer.token_embedding.weight


@pytest.mark.parametrize("config", [DEEPSEEK_V3, KIMI_K2])
def test_no_absolute_positions(config: dict[str, object]) -> None:
    assert describe(config).positions == "rotary"
    assert list(dict(Embeddings.from_config(config, device="meta").named_parameters())) == ["token_embedding.weight"]


def test_padding_id_of_the_config_is_the_padding_row() -> None:
    small = KIMI_K2 | {"vocab_size": 64, "hidden_size": 16, "pad_token_id": 63}
    assert not Embeddings.from_config(small).token_embedding.weight[63].any()
