"""Tasks of 001_1a1b329bdd71743e.txt: the tasks, the quiz and the advanced task of the forward-pass lesson.

The exercise's table, 100,352 x 4,096, is made once at its true size, in bfloat16 and with only the rows that are read
filled: a draw of all 411 million numbers takes seconds and proves nothing more. Values are checked on a narrow one.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from inlayer import Embeddings, mean_pool
from inlayer.learn.course import open_course
from inlayer.positions import sinusoidal_encoding

V, D, PAD = 100_352, 4_096, 0


@pytest.fixture(scope="module")
def embed_tokens() -> Embeddings:
    """A table with all rows of the exercise, eight channels wide."""
    return Embeddings(V, 8, padding_idx=PAD, seed=0)


# ---- theory


def test_theory_1_lookup_without_positions(embed_tokens: Embeddings) -> None:
    e1, e2 = embed_tokens.token_embedding.weight[1:3]
    assert torch.equal(embed_tokens(torch.tensor([[1, 2]])), torch.stack([e1, e2])[None])


def test_theory_2_other_vectors_as_inputs_embeds(embed_tokens: Embeddings) -> None:
    """Image patches next to text embeddings: concatenated outside, passed as inputs_embeds."""
    patches, rows = torch.randn(1, 3, 8), embed_tokens(torch.tensor([[1, 2]]))
    mixed = torch.cat([patches, rows], dim=1)
    assert torch.equal(embed_tokens(inputs_embeds=mixed), mixed)


# ---- code tasks


def test_task_1_basic_forward(embed_tokens: Embeddings) -> None:
    hidden = embed_tokens(torch.tensor([[1, 2, 3, 0]]))
    assert hidden.shape == (1, 4, 8)
    assert hidden[0, 0].abs().min() > 0
    assert torch.equal(hidden[0, 3], torch.zeros(8))


def test_task_1_at_full_size() -> None:
    layer = Embeddings(V, D, padding_idx=PAD, init_std=0.0, dtype=torch.bfloat16, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.token_embedding.weight[1:4] = torch.randn(3, D, generator=torch.Generator().manual_seed(0))
        layer.token_embedding.weight[PAD].zero_()
        hidden = layer(torch.tensor([[1, 2, 3, 0]]))
    assert hidden.shape == (1, 4, D)
    assert torch.allclose(hidden[0, 3, :], torch.zeros(D, dtype=torch.bfloat16))
    assert hidden[0, 0, :5].abs().min() > 0
    assert torch.equal(hidden[0, :3], layer.token_embedding.weight[1:4])


def test_task_2_both_paths() -> None:
    layer = Embeddings(V, D, padding_idx=PAD, device="meta")
    assert layer(inputs_embeds=torch.randn(1, 5, D, device="meta")).shape == (1, 5, D)
    assert layer(torch.ones(1, 7, dtype=torch.int64, device="meta")).shape == (1, 7, D)


def test_task_3_manual_gather(embed_tokens: Embeddings) -> None:
    weight, indices = embed_tokens.token_embedding.weight, torch.tensor([1, 3])
    theirs = torch.index_select(weight, 0, indices)[None]
    assert torch.equal(embed_tokens(torch.tensor([[1, 3]])), theirs)
    assert torch.equal(weight[:5][indices][None], theirs)


def test_task_3_as_written_raises(embed_tokens: Embeddings) -> None:
    """index_select needs a 1-D index, but the task passes two axes."""
    indices = torch.tensor([1, 3])
    with pytest.raises(IndexError, match="supposed to be a vector"):
        torch.index_select(embed_tokens.token_embedding.weight, 0, indices.unsqueeze(0).expand(1, -1))


def test_task_4_batch_with_padding(embed_tokens: Embeddings) -> None:
    input_ids = torch.tensor([[1, 2, 0], [3, 0, 4]])
    embeds, attention_mask = embed_tokens(input_ids), (input_ids != PAD).float()
    assert attention_mask.tolist() == [[1, 1, 0], [1, 0, 1]]
    weight = embed_tokens.token_embedding.weight
    theirs = torch.stack([(weight[1] + weight[2]) / 2, (weight[3] + weight[4]) / 2])
    assert torch.equal(mean_pool(embeds, attention_mask), theirs)


def test_task_4_sum_is_not_the_mean(embed_tokens: Embeddings) -> None:
    """The task stops at the masked sum; a mean divides it by the number of real tokens, not by the length."""
    input_ids = torch.tensor([[1, 2, 0]])
    embeds, mask = embed_tokens(input_ids), (input_ids != PAD).float()
    summed = (embeds * mask.unsqueeze(-1)).sum(1)
    torch.testing.assert_close(mean_pool(embeds, mask), summed / mask.sum(1, keepdim=True), rtol=0, atol=0)
    assert not torch.allclose(mean_pool(embeds, mask), summed)
    assert not torch.allclose(mean_pool(embeds, mask), embeds.mean(1))


def test_task_4_all_padding_does_not_divide_by_zero(embed_tokens: Embeddings) -> None:
    input_ids = torch.tensor([[0, 0], [5, 0]])
    embeds, mask = embed_tokens(input_ids), (input_ids != PAD).float()
    naive = (embeds * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    assert naive[0].isnan().all()
    assert torch.equal(mean_pool(embeds, mask), torch.stack([torch.zeros(8), embeds[1, 0]]))


# ---- quiz


def test_quiz_1_shape() -> None:
    layer = Embeddings(V, D, device="meta")
    assert layer(torch.zeros(2, 10, dtype=torch.int64, device="meta")).shape == (2, 10, 4096)  # answer b


def test_quiz_2_positions_are_not_added(embed_tokens: Embeddings) -> None:
    hidden = embed_tokens(torch.tensor([[5, 5]]))
    assert torch.equal(hidden[0, 0], hidden[0, 1])  # answer: false


def test_quiz_3_neither_input(embed_tokens: Embeddings) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        embed_tokens(input_ids=None, inputs_embeds=None)


# ---- advanced task


class Wrapper(nn.Module):
    """Take ids or vectors, with or without sinusoidal positions: two layers that share one table."""

    def __init__(self) -> None:
        super().__init__()
        self.before = Embeddings(10, 8, seed=0)
        self.after = Embeddings(10, 8, positions="sinusoidal")
        self.after.set_input_embeddings(self.before.get_input_embeddings())

    def forward(
        self, input_ids: Tensor | None = None, inputs_embeds: Tensor | None = None, *, positions: bool
    ) -> Tensor:
        return (self.after if positions else self.before)(input_ids, inputs_embeds)


def test_advanced_task() -> None:
    wrapper, input_ids = Wrapper(), torch.tensor([[1, 2]])
    before, after = wrapper(input_ids, positions=False), wrapper(input_ids, positions=True)
    assert torch.equal(before[0], wrapper.before.token_embedding.weight[[1, 2]])
    waves = [[f(t / 10_000 ** (2 * i / 8)) for i in range(4) for f in (math.sin, math.cos)] for t in range(2)]
    assert torch.equal(after, before + torch.tensor(waves)[None])
    assert torch.equal(torch.tensor(waves), sinusoidal_encoding(torch.arange(2), 8))
    # vectors instead of ids give the same result with and without positions
    assert torch.equal(wrapper(inputs_embeds=before, positions=True), after)
    assert torch.equal(wrapper(inputs_embeds=before, positions=False), before)
    # order matters only with positions
    swapped = torch.tensor([[2, 1]])
    assert torch.equal(wrapper(swapped, positions=False), before.flip(1))
    assert not torch.equal(wrapper(swapped, positions=True), after.flip(1))


# ---- the course

IN_THE_COURSE = {
    "theory 1": {"forward/hidden_shape", "forward/forward_lookup"},
    "theory 2": {"forward/why_vectors", "forward/vectors_or_ids"},
    "theory 3": {"forward/bytes_per_lookup", "forward/efficiency", "large/million_rows"},
    "theory 4": {"forward/which_raises", "forward/sizes_inferred", "forward/error_handling"},
    "code task 1": {"basic_forward"},
    "code task 2": {"both_inputs"},
    "code task 3": {"gather"},
    "code task 4": {"mean_pool"},
    "quiz 1": {"hidden_states_shape"},
    "quiz 2": {"positions_added"},
    "quiz 3": {"no_input_at_all"},
    "advanced": {"position_wrapper", "position/why_kimi_adds_no_positions"},
}


@pytest.mark.parametrize("part", IN_THE_COURSE)
def test_course_contains_every_part(part: str) -> None:
    course = open_course()
    assert IN_THE_COURSE[part] <= {*course.tasks, *course.exercises, *course.questions}
