"""A step of learning against torch.optim.SGD on the whole table, and its shifts against the map."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import inlayer
from inlayer.geometry.projection import pca
from inlayer.trace import Change
from inlayer.trace.gradient_step import GradientStepFacts, take_gradient_step
from tests.trace.pipelines import family, random_bytes, sample
from tests.trace.test_backward import trainable

TEXTS = ["I love dogs and dogs love rain", "dogs"]


def loss_after_sgd(name: str, texts: list[str], rate: float) -> tuple[float, torch.Tensor]:
    """The loss after one step of SGD on the table, and the probabilities after the last token of the first text."""
    pipeline = sample(name) if name == "default" else family(name)
    layer, head = trainable(pipeline)
    assert head is not None
    assert pipeline.tokenizer is not None
    ids, mask = pipeline.tokenizer.encode_batch(texts).padded(pipeline.padding_id or 0)
    targets = ids[:, 1:].where(mask[:, 1:].bool(), -100)
    optimizer = torch.optim.SGD([layer.token_embedding.weight], lr=rate)
    head.loss(layer(ids, attention_mask=mask)[:, :-1], targets).backward()
    optimizer.step()
    with torch.no_grad():
        hidden = layer(ids, attention_mask=mask)
        last = int(mask[0].sum()) - 1
        return float(head.loss(hidden[:, :-1], targets)), head(hidden[0, last]).softmax(-1)


@pytest.mark.parametrize("name", ["default", "gpt2", "t5", "gemma", "deepseek_v3", "opt-projected"])
def test_loss_equals_a_step_of_sgd(name: str) -> None:
    pipeline = sample(name) if name == "default" else family(name)
    texts = TEXTS if pipeline.padding_id is not None else TEXTS[:1]
    facts = take_gradient_step(pipeline, texts, learning_rates=(0.0, 0.3))
    if facts.loss_kind == "sum":
        assert facts.steps == []
        assert "because" in facts.note
        return
    for step in facts.steps:
        loss, probabilities = loss_after_sgd(name, texts, step.learning_rate)
        assert step.loss == pytest.approx(loss, rel=1e-4)
        assert step.next_tokens[0].probability == pytest.approx(float(probabilities.max()), rel=1e-3)
        for one in step.next_tokens:
            assert one.probability == pytest.approx(float(probabilities[one.id]), rel=1e-3, abs=1e-7)
    assert facts.steps[0].loss != facts.steps[1].loss  # control
    assert facts.uniform_loss == pytest.approx(math.log(pipeline.table.shape[0]))


def learned(method: str | None, learning_rates: tuple[float, ...] = (0.0, 1.5)) -> GradientStepFacts:
    projection = None if method is None else inlayer.load().project(method)
    return take_gradient_step(sample("default"), ["I love dogs"], learning_rates=learning_rates, projection=projection)


def test_the_text_becomes_more_probable() -> None:
    facts = learned(None, (0.0, 0.3, 0.6))
    losses = [step.loss for step in facts.steps]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < facts.uniform_loss / 2 < losses[0]
    assert facts.predicted_at == (0, 2)
    assert facts.steps[-1].target.probability > facts.steps[0].target.probability
    assert [step.target.label for step in facts.steps] == ["s"] * 3
    assert all(one.shift is None for step in facts.steps for one in step.moved)


def test_rows_move_on_a_pca_map_as_their_projection_does() -> None:
    model, pipeline = inlayer.load(), sample("default")
    projection = pca(model.table)
    start, step = learned("pca").steps
    back = pipeline.walk(["I love dogs"], dims=128).backward
    assert back is not None
    assert projection.axes is not None
    for before, moved, row in zip(start.moved, step.moved, back.rows, strict=True):
        assert moved.id == row.id
        old = model.table.rows([row.id])[0].astype(np.float64)
        new = old - 1.5 * np.array(row.total)
        np.testing.assert_allclose(moved.shift, (new - old) @ projection.axes, atol=1e-4)
        assert before.shift == (0.0, 0.0)
        assert moved.norm == pytest.approx(np.linalg.norm(new), rel=1e-4)
        assert moved.cosine == pytest.approx(old @ new / np.linalg.norm(old) / np.linalg.norm(new), abs=1e-5)


def test_rows_move_on_a_tsne_map_with_their_neighbors() -> None:
    model, pipeline = inlayer.load(), sample("default")
    points = model.project("tsne").points
    step = learned("tsne").steps[1]
    back = pipeline.walk(["I love dogs"], dims=128).backward
    assert back is not None
    table = model.table.weight.astype(np.float64)
    for moved, row in zip(step.moved, back.rows, strict=True):
        means = []
        for vector in (table[row.id], table[row.id] - 1.5 * np.array(row.total)):
            with np.errstate(all="ignore"):
                cosines = table @ vector / np.linalg.norm(table, axis=1)
            cosines[row.id] = -np.inf
            means.append(points[np.argsort(-np.nan_to_num(cosines, nan=-np.inf))[:10]].mean(axis=0))
        np.testing.assert_allclose(moved.shift, means[1] - means[0], atol=1e-3)
    assert any(np.hypot(*(moved.shift or (0, 0))) > 1 for moved in step.moved)


def test_padding_does_not_move_and_texts_without_a_target_have_no_steps() -> None:
    pipeline = random_bytes("learned")
    facts = take_gradient_step(pipeline, ["ab", "a"], learning_rates=(0.0, 1.0), change=Change(pad=1))
    assert [one.id for one in facts.steps[1].moved] == [97, 98]
    for texts in (["a"], [""]):
        none = take_gradient_step(pipeline, texts)
        assert (none.loss_kind, none.steps) == ("sum", [])
        assert none.note
