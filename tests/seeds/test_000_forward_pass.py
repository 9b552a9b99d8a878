"""Statements of 000_cdf50b172ea735b1.txt: the forward pass of Kimi-K2's embed_tokens."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from inlayer import Embeddings, Table

B, T, V, D = 2, 5, 50, 8


@pytest.fixture
def layer() -> Embeddings:
    return Embeddings(V, D, positions="rotary", head_dim=4, padding_idx=0, seed=0)


def test_hidden_states_are_the_rows_of_the_ids(layer: Embeddings) -> None:
    """hidden[b, t] = E[ids[b, t]], element by element."""
    ids = torch.randint(V, (B, T), generator=torch.Generator().manual_seed(0))
    ours = layer(ids)
    assert ours.shape == (B, T, D)
    for b in range(B):
        for t in range(T):
            assert torch.equal(ours[b, t], layer.token_embedding.weight[ids[b, t]])
    assert not torch.equal(layer(ids.roll(1, dims=1)), ours)


def test_example_of_the_document(layer: Embeddings) -> None:
    embed_tokens = layer.get_input_embeddings()
    input_ids = torch.tensor([[1, 2, 3]])
    embeds = embed_tokens(input_ids)
    assert embeds.shape == (1, 3, D)
    assert torch.equal(embeds[0], embed_tokens.weight[[1, 2, 3]])


def test_both_inputs_raise_a_value_error(layer: Embeddings) -> None:
    with pytest.raises(ValueError, match="both input_ids and inputs_embeds were given"):
        layer(torch.tensor([[1]]), torch.zeros(1, 1, D))


def test_no_input_raises_a_value_error(layer: Embeddings) -> None:
    with pytest.raises(ValueError, match="neither input_ids nor inputs_embeds was given"):
        layer()


def test_inputs_embeds_pass_through_unchanged(layer: Embeddings) -> None:
    vectors = torch.randn(B, T, D)
    assert torch.equal(layer(inputs_embeds=vectors), vectors)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(layer(inputs_embeds=layer.get_input_embeddings()(ids)), layer(ids))


@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (2, 5), (3, 10)])
def test_batch_and_length_follow_either_input(layer: Embeddings, batch: int, tokens: int) -> None:
    assert layer(torch.ones(batch, tokens, dtype=torch.int64)).shape == (batch, tokens, D)
    assert layer(inputs_embeds=torch.zeros(batch, tokens, D)).shape == (batch, tokens, D)


def test_rotary_adds_nothing_to_the_embeddings(layer: Embeddings) -> None:
    """Unlike in BERT and GPT-2, the same token gives the same vector at every position."""
    ids = torch.tensor([[7, 7, 7]])
    rotary, learned = layer(ids), Embeddings(V, D, block_size=8, seed=0)(ids)
    assert torch.equal(rotary[0, 0], rotary[0, 2])
    assert torch.equal(layer(ids, position_ids=torch.tensor([[9, 5, 1]])), rotary)
    assert not torch.equal(learned[0, 0], learned[0, 2])


def test_rotary_prepares_cos_and_sin_for_attention(layer: Embeddings) -> None:
    cos, sin = layer.rotary(torch.arange(T)[None])
    assert cos.shape == sin.shape == (1, T, 4)
    assert torch.equal(cos[0, 0], torch.ones(4))
    assert not torch.equal(cos[0, 0], cos[0, 1])


def test_lookup_equals_torch_gather() -> None:
    """nn.Embedding, index_select and gather return the same rows."""
    table = Table(V, D, seed=0)
    ids = torch.tensor([[4, 1], [9, 4]])
    ours = table(ids)
    assert torch.equal(ours, nn.Embedding.from_pretrained(table.weight)(ids))
    assert torch.equal(ours, torch.index_select(table.weight, 0, ids.flatten()).view(2, 2, D))
    assert torch.equal(ours, table.weight.gather(0, ids.flatten()[:, None].expand(-1, D)).view(2, 2, D))


def test_only_looked_up_rows_get_a_gradient() -> None:
    """Access is sparse: a lookup affects only its own rows, however large the table is."""
    layer = Embeddings(V, D, seed=0)
    layer(torch.tensor([[3, 3, 8]])).sum().backward()
    grad = layer.token_embedding.weight.grad
    assert grad is not None
    assert grad.abs().sum(1).nonzero().flatten().tolist() == [3, 8]
    assert torch.equal(grad[3], 2 * grad[8])  # read twice, so its gradient is doubled


def test_get_input_embeddings(layer: Embeddings) -> None:
    assert layer.get_input_embeddings() is layer.token_embedding
