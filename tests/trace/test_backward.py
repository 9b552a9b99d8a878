"""Backwards: the gradients of the rows in use, against autograd on the whole table in memory."""

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
from tests.trace.lines import FAMILIES, bytes_line, family, sample

DIMS = 6


def whole(line: Pipeline) -> tuple[Embeddings, Head | None]:
    """The same layer and head with every row a float32 parameter."""
    layer, head = copy.deepcopy((line.layer, line.head))
    table = layer.token_embedding
    rows = table.in_memory().weight if isinstance(table, StoredEmbedding) else table.weight
    layer = layer.float()
    layer.set_input_embeddings(Table.from_weight(rows.detach().float().clone(), layer.padding_idx))
    layer.token_embedding.requires_grad_(True)
    if head is not None:
        head = head.float()
        if line.head is not None and line.head.tied:
            layer.tie(head)
    return layer, head


def gradient(line: Pipeline, texts: list[str], back: Backward) -> Tensor:
    assert line.tokenizer is not None
    layer, head = whole(line)
    ids, mask = line.tokenizer.encode_batch(texts).padded(line.padding_id or 0)
    hidden = layer(ids, attention_mask=mask)
    if back.loss == "sum":  # padding that is no padding row does not count
        loss = (hidden if line.layer.padding_idx is not None else hidden * mask[..., None]).sum()
    else:
        assert head is not None
        targets = ids[:, 1:].where(mask[:, 1:].bool(), -100)
        loss = head.loss(hidden[:, :-1], targets)
    loss.backward()
    torch.testing.assert_close(torch.tensor(back.value), loss.detach(), rtol=1e-5, atol=1e-5)
    weight = layer.token_embedding.weight
    assert weight.grad is not None
    return weight.grad


def compare(line: Pipeline, texts: list[str]) -> Backward:
    back = line.walk(texts, dims=DIMS).backward
    assert back is not None
    theirs = gradient(line, texts, back)
    scale = float(theirs.abs().max()) or 1.0
    for row in back.rows:
        torch.testing.assert_close(torch.tensor(row.total) / scale, theirs[row.id, :DIMS] / scale, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(torch.tensor(row.norm) / scale, theirs[row.id].norm() / scale, rtol=1e-4, atol=1e-4)
    assert back.touched == int(theirs.abs().sum(1).gt(0).sum())
    return back


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name: str) -> None:
    texts = ["I love dogs and dogs love rain", "dogs"]
    line = family(name)
    compare(line, texts if line.padding_id is not None else texts[:1])


@pytest.mark.parametrize("name", ["default", "minilm", "wordllama", "smollm2"])
def test_samples(name: str) -> None:
    compare(sample(name), ["I love dogs, dogs, dogs"])


def test_repeated_ids_are_summed_and_the_padding_row_is_untouched() -> None:
    line = bytes_line("none")
    back = compare(line, ["aab", "a"])
    a, b, padding = back.rows
    assert (a.count, b.count, padding.count) == (3, 1, 2)
    assert a.places == [(0, 0), (0, 1), (1, 0)]
    assert padding.is_padding
    assert padding.total == [0.0] * DIMS
    assert padding.norm == 0.0
    assert back.tied
    assert back.touched == line.table.shape[0] - 1
    assert back.padding_without_guard is not None
    assert any(back.padding_without_guard)  # the head would have reached it


def test_the_sum_reaches_only_rows_in_use() -> None:
    tied = bytes_line("none")
    line = Pipeline.of_layer(tied.tokenizer, tied.layer, source="headless")
    back = compare(line, ["aab", "a"])
    assert back.loss == "sum"
    assert [row.lookup[0] for row in back.rows] == [3.0, 1.0, 0.0]  # a gradient of 1 a place, none for padding
    assert back.padding_without_guard == [2.0] * DIMS
    assert back.touched == 2
    assert all(row.head is None for row in back.rows)


def test_both_shares_make_the_total() -> None:
    back = sample("default").walk(["I love dogs"], dims=DIMS).backward
    assert back is not None
    for row in back.rows:
        assert row.head is not None
        assert row.total == (torch.tensor(row.lookup) + torch.tensor(row.head)).tolist()
        assert any(row.head)


def test_a_table_that_is_not_held_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    line = sample("default")
    held = line.walk(["I love dogs"])
    monkeypatch.setattr("inlayer.trace.parts.HELD_VALUES", 0)
    monkeypatch.setattr("inlayer.trace.parts.BLOCK_VALUES", 1000 * 128)
    assert line.walk(["I love dogs"]) == held
    memory = bytes_line("none")
    assert memory.walk(["ab"]).gather.equal


def test_a_head_too_large_or_missing_gives_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.trace.backward.MAX_HEAD_VALUES", 10)
    back = sample("default").walk(["I love dogs"]).backward
    assert back is not None
    assert back.loss == "sum"
    assert "too large" in back.note
    one = sample("minilm").walk(["I love dogs"]).backward
    assert one is not None
    assert one.loss == "sum"


def test_changed_positions_change_the_gradient() -> None:
    line = sample("default")
    plain, waves = (line.walk(["I love dogs"], change=Change(positions=name)).backward for name in (None, "sinusoidal"))
    assert plain is not None
    assert waves is not None
    assert plain.rows[0].total != waves.rows[0].total


def test_a_head_that_is_sure_sends_nothing_elsewhere() -> None:
    """Where the softmax leaves no chance to a row, no gradient reaches it: counted, not assumed."""
    line = bytes_line("none")
    with torch.no_grad():
        line.layer.token_embedding.weight.mul_(5000)
    back = compare(Pipeline.of_layer(line.tokenizer, line.layer, line.head, source="sure"), ["aab"])
    assert back.touched < 100


def test_nothing_is_learned_from_no_tokens() -> None:
    trace = bytes_line("none").walk([""])
    assert trace.backward is None
    assert "no token" in trace.steps[7].note


def test_the_caller_keeps_his_gradients() -> None:
    line = bytes_line("learned")
    line.walk(["aab"])
    assert all(parameter.grad is None for parameter in line.layer.parameters())
