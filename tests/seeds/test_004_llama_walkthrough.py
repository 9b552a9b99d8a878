"""Statements of 004_382aa1a897313c7c.txt: the walkthrough of a LLaMA-style model's input layer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from inlayer import ByteTokenizer, Embeddings, Head, WordTokenizer

IDS = [73, 786, 2934]
ROWS = [
    [0.22, -0.51, 0.36, 0.08, -0.44, 0.19, -0.09, 0.27],
    [-0.13, 0.42, 0.07, -0.36, 0.55, -0.22, 0.18, 0.04],
    [0.31, -0.14, -0.25, 0.49, -0.07, 0.61, -0.12, -0.33],
]


@pytest.fixture
def layer() -> Embeddings:
    layer = Embeddings(3_000, 8, positions="rotary", seed=0)
    with torch.no_grad():
        layer.token_embedding.weight[IDS] = torch.tensor(ROWS)
    return layer


@pytest.fixture
def tokenizer() -> WordTokenizer:
    """A word-level tokenizer with the ids of the document."""
    words = [f"word{i}" for i in range(3_000)]
    words[73], words[786], words[2934] = "I", "love", "dogs"
    return WordTokenizer(words)


def test_one_text_is_seq_len_by_width(layer: Embeddings, tokenizer: WordTokenizer) -> None:
    ids = tokenizer.encode("I love dogs")
    assert ids == IDS
    hidden = layer(torch.tensor(ids))
    assert hidden.shape == (3, 8)
    assert torch.equal(hidden, torch.tensor(ROWS))
    assert torch.equal(layer(torch.tensor(tokenizer.encode("dogs love I"))), torch.tensor(ROWS[::-1]))


def test_batch_axis_comes_first(layer: Embeddings, tokenizer: WordTokenizer) -> None:
    hidden = layer(torch.tensor([tokenizer.encode("I love dogs")]))
    assert hidden.shape == (1, 3, 8)
    assert torch.equal(hidden[0], torch.tensor(ROWS))
    assert layer(torch.tensor([IDS, IDS])).shape == (2, 3, 8)


def test_lookup_selects_rows(layer: Embeddings) -> None:
    """Equal to a one-hot vector times the matrix, which is never computed in practice."""
    ids = torch.tensor([IDS])
    one_hot = F.one_hot(ids, layer.vocab_size).float()
    assert torch.equal(layer(ids), one_hot @ layer.token_embedding.weight)


@pytest.mark.parametrize("n_embd", [768, 1024, 4096])
def test_tokenizer_sets_the_rows_and_the_width_is_free(n_embd: int) -> None:
    layer = Embeddings(ByteTokenizer().get_vocab_size(), n_embd, device="meta")
    assert layer.token_embedding.weight.shape == (256, n_embd)


def test_tokens_have_unique_vectors_of_equal_width() -> None:
    layer = Embeddings(1_300, 8, seed=0)
    man, woman = layer(torch.tensor([1098, 1290]))
    assert man.shape == woman.shape == (8,)
    assert not torch.equal(man, woman)
    assert len(layer.token_embedding.weight.unique(dim=0)) == 1_300


def test_rows_are_random_and_trained_by_backpropagation() -> None:
    assert not torch.equal(Embeddings(9, 4).token_embedding.weight, Embeddings(9, 4).token_embedding.weight)
    layer = Embeddings(9, 4, seed=0)
    initial = layer.token_embedding.weight.detach().clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    for _ in range(100):
        optimizer.zero_grad()
        loss = (layer(torch.tensor([3])) - 1).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 1e-3
    assert torch.equal(layer.token_embedding.weight[4], initial[4])


def test_rope_is_the_position_scheme(layer: Embeddings) -> None:
    """RoPE adds nothing to the embeddings; cos and sin are prepared for attention."""
    assert torch.equal(layer(torch.tensor([73, 73]))[0], layer(torch.tensor([73, 73]))[1])
    cos, sin = layer.rotary(torch.arange(3)[None])
    assert cos.shape == sin.shape == (1, 3, 8)


def test_byte_of_a_letter() -> None:
    """The token "I" in the document is 73, its byte."""
    assert ByteTokenizer().encode("I") == [73]


def test_tying_starts_at_chance_with_a_small_init() -> None:
    """The document calls tying unstable. The cause is scale: with N(0, 1) rows the first loss is far above chance."""

    def first_loss(init: str) -> float:
        layer, head = Embeddings(1_000, 64, init=init, seed=0), Head(64, 1_000)
        layer.tie(head)
        ids = torch.arange(1_000)
        return head.loss(layer(ids), ids.roll(-1)).item()

    chance = torch.tensor(1_000.0).log().item()
    assert abs(first_loss("normal") - chance) < 0.1
    assert first_loss("embedding") > 5 * chance


def test_tied_model_learns() -> None:
    layer, head = Embeddings(16, 32, seed=0), Head(32, 16)
    layer.tie(head)
    body = torch.nn.Linear(32, 32)
    optimizer = torch.optim.AdamW([*layer.parameters(), *head.parameters(), *body.parameters()], lr=0.02)
    ids = torch.arange(16)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = head.loss(body(layer(ids)), ids.roll(-1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.1 < losses[0]
