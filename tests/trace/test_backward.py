"""Backward pass: gradients of the rows in use, compared with autograd on the whole table."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from inlayer.embeddings import Embeddings
from inlayer.head import Head
from inlayer.tables import StoredEmbedding, Table
from inlayer.trace import Change, Pipeline
from inlayer.trace.facts import Backward
from tests.trace.pipelines import FAMILIES, SAMPLES, family, random_bytes, sample  # some are slow tests

DIMS = 6


def trainable(pipeline: Pipeline) -> tuple[Embeddings, Head | None]:
    """The same layer and head with the whole table as a float32 parameter."""
    layer, head = copy.deepcopy((pipeline.layer, pipeline.head))
    table = layer.token_embedding
    rows = table.in_memory().weight if isinstance(table, StoredEmbedding) else table.weight
    layer = layer.float()
    layer.set_input_embeddings(Table.from_weight(rows.detach().float().clone(), layer.padding_idx))
    layer.token_embedding.requires_grad_(True)
    if head is not None:
        head = head.float()
        if pipeline.head is not None and pipeline.head.tied:
            layer.tie(head)
    return layer, head


def gradient(pipeline: Pipeline, texts: list[str], back: Backward) -> Tensor:
    assert pipeline.tokenizer is not None
    layer, head = trainable(pipeline)
    ids, mask = pipeline.tokenizer.encode_batch(texts).padded(pipeline.padding_id or 0)
    hidden = layer(ids, attention_mask=mask)
    if back.loss_kind == "sum":  # without a padding_idx, padding is excluded by the mask
        loss = (hidden if pipeline.layer.padding_idx is not None else hidden * mask[..., None]).sum()
    else:
        assert head is not None
        targets = ids[:, 1:].where(mask[:, 1:].bool(), -100)
        loss = head.loss(hidden[:, :-1], targets)
    loss.backward()
    torch.testing.assert_close(torch.tensor(back.loss), loss.detach(), rtol=1e-5, atol=1e-5)
    weight = layer.token_embedding.weight
    assert weight.grad is not None
    return weight.grad


def compare(pipeline: Pipeline, texts: list[str]) -> Backward:
    back = pipeline.walk(texts, dims=DIMS).backward
    assert back is not None
    theirs = gradient(pipeline, texts, back)
    scale = float(theirs.abs().max()) or 1.0
    for row in back.rows:
        torch.testing.assert_close(torch.tensor(row.total) / scale, theirs[row.id, :DIMS] / scale, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(row.norm) / scale, theirs[row.id].norm() / scale, rtol=1e-4, atol=1e-4)
    assert back.n_rows_with_gradient == int(theirs.abs().sum(1).gt(0).sum())
    return back


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_match_autograd_for_every_family(name: str) -> None:
    texts = ["I love dogs and dogs love rain", "dogs"]
    pipeline = family(name)
    compare(pipeline, texts if pipeline.padding_id is not None else texts[:1])


@pytest.mark.parametrize("name", SAMPLES)
def test_gradients_match_autograd_for_samples(name: str) -> None:
    compare(sample(name), ["I love dogs, dogs, dogs"])


def test_gradients_of_repeated_ids_are_summed_and_padding_gets_none() -> None:
    pipeline = random_bytes("none")
    back = compare(pipeline, ["aab", "a"])
    a, b, padding = back.rows
    assert (a.count, b.count, padding.count) == (3, 1, 2)
    assert a.occurrences == [(0, 0), (0, 1), (1, 0)]
    assert padding.is_padding
    assert padding.total == [0.0] * DIMS
    assert padding.norm == 0.0
    assert back.tied
    assert back.n_rows_with_gradient == pipeline.table.shape[0] - 1
    assert back.unmasked_padding_gradient is not None
    assert any(back.unmasked_padding_gradient)  # from the head


def test_sum_loss_reaches_only_rows_in_use() -> None:
    tied = random_bytes("none")
    pipeline = Pipeline.from_layer(tied.layer, tied.tokenizer, source="headless")
    back = compare(pipeline, ["aab", "a"])
    assert back.loss_kind == "sum"
    assert [row.lookup[0] for row in back.rows] == [3.0, 1.0, 0.0]  # 1 per occurrence, none for padding
    assert back.unmasked_padding_gradient == [2.0] * DIMS
    assert back.n_rows_with_gradient == 2
    assert all(row.head is None for row in back.rows)


def test_total_is_the_sum_of_lookup_and_head() -> None:
    back = sample("default").walk(["I love dogs"], dims=DIMS).backward
    assert back is not None
    for row in back.rows:
        assert row.head is not None
        assert row.total == (torch.tensor(row.lookup) + torch.tensor(row.head)).tolist()
        assert any(row.head)


def test_uncached_tables_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = sample("default")
    cached = pipeline.walk(["I love dogs"])
    monkeypatch.setattr("inlayer.trace.pipeline.MAX_CACHED_VALUES", 0)
    monkeypatch.setattr("inlayer.trace.pipeline.BLOCK_VALUES", 1000 * 128)
    assert pipeline.walk(["I love dogs"]) == cached
    memory = random_bytes("none")
    assert memory.walk(["ab"]).gather.equal


def test_large_or_missing_heads_use_the_sum_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.trace.backward.MAX_HEAD_VALUES", 10)
    back = sample("default").walk(["I love dogs"]).backward
    assert back is not None
    assert back.loss_kind == "sum"
    assert "too large" in back.note
    one = sample("minilm").walk(["I love dogs"]).backward
    assert one is not None
    assert one.loss_kind == "sum"


def test_changed_positions_change_the_gradient() -> None:
    pipeline = sample("default")
    plain, sinusoidal = (
        pipeline.walk(["I love dogs"], change=Change(positions=name)).backward for name in (None, "sinusoidal")
    )
    assert plain is not None
    assert sinusoidal is not None
    assert plain.rows[0].total != sinusoidal.rows[0].total


def test_rows_with_zero_probability_get_no_gradient() -> None:
    """Rows whose softmax probability underflows to zero are not counted."""
    pipeline = random_bytes("none")
    with torch.no_grad():
        pipeline.layer.token_embedding.weight.mul_(5000)
    back = compare(Pipeline.from_layer(pipeline.layer, pipeline.tokenizer, pipeline.head, source="confident"), ["aab"])
    assert back.n_rows_with_gradient < 100


def test_empty_text_has_no_backward_pass() -> None:
    trace = random_bytes("none").walk([""])
    assert trace.backward is None
    assert "no tokens" in trace.steps[7].note


def test_walk_leaves_gradients_of_the_caller_alone() -> None:
    pipeline = random_bytes("learned")
    pipeline.walk(["aab"])
    assert all(parameter.grad is None for parameter in pipeline.layer.parameters())


@pytest.mark.parametrize(
    ("texts", "window", "part"),
    [
        (["I love dogs"], {}, "3 next tokens, predicted"),
        (["I love dogs"], {"max_tokens": 2}, "1 next token in the first 2 of 4 tokens, predicted"),
        (["I love dogs"], {"max_tokens": 2, "first_token": 2}, "1 next token in tokens 2 to 3 of 4, predicted"),
        (["I love dogs", "Hi"], {"max_tokens": 2}, "2 next tokens in the first 2 tokens of each text, predicted"),
        (["I love dogs", "I love"], {"max_tokens": 2, "first_token": 2}, "1 next token in tokens 2 to 3 of each text,"),
        (["the " * 2000], {"max_tokens": 2000}, "the first 1,365 next tokens"),
    ],
)
def test_the_note_names_the_part_of_a_text(texts: list[str], window: dict[str, int], part: str) -> None:
    back = sample("default").walk(texts, **window).backward
    assert back is not None
    assert back.note.startswith(f"cross-entropy of {part}")
