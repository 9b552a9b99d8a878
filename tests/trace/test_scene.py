"""The scene of a walk: strips, cosines and the sample of the table, elementwise against the layer."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from inlayer.embeddings import Embeddings
from inlayer.errors import InputError
from inlayer.positions.rope_scaling import plain_frequencies
from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline
from inlayer.trace import scene as module
from inlayer.trace.scene import Strip, describe_scene
from tests.trace.pipelines import family, random_bytes, sample

TEXTS = ["I love dogs and rain", "dogs"]


def decoded(strip: Strip, *shape: int) -> Tensor:
    return torch.from_numpy(np.frombuffer(base64.b64decode(strip.values), np.int8).copy()).view(*shape, strip.width)


def quantized(values: Tensor, scale: float) -> Tensor:
    return (127 * (values.float() / scale)).round().clamp(-127, 127)


def close(ours: Tensor, theirs: Tensor) -> None:
    """Equal, up to one step where a value is between two."""
    assert (ours.float() - theirs).abs().max() <= 1
    assert (ours.float() != theirs).float().mean() < 0.001


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary", None])
def test_strips_are_the_rows_positions_and_hidden_states(positions: str | None) -> None:
    pipeline = sample("default")
    scene = describe_scene(pipeline, TEXTS, change=Change(positions=positions))
    assert pipeline.tokenizer is not None
    ids, mask = pipeline.tokenizer.encode_batch(TEXTS).padded(pipeline.padding_id or 0)
    layer = pipeline.active_layer(positions, None).layer
    hidden, rows = layer(ids, attention_mask=mask).detach(), layer.token_embedding(ids)
    assert scene.shape == hidden.shape
    assert scene.tokens == ids.shape[1]
    close(decoded(scene.strips.row, *ids.shape), quantized(rows, scene.strips.row.scale))
    close(decoded(scene.strips.hidden, *ids.shape), quantized(hidden, scene.strips.hidden.scale))
    assert not torch.equal(decoded(scene.strips.row, *ids.shape), quantized(rows.flip(1), scene.strips.row.scale))
    if positions in ("learned", "sinusoidal"):
        assert scene.strips.position is not None
        added = layer.position_embedding(torch.arange(ids.shape[1])).detach().to(rows.dtype).expand_as(rows)  # type: ignore[misc]
        close(decoded(scene.strips.position, *ids.shape), quantized(added, scene.strips.position.scale))
    else:
        assert scene.strips.position is None


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_similarity_equals_torch(positions: str) -> None:
    pipeline = sample("default")
    scene = describe_scene(pipeline, TEXTS, change=Change(positions=positions))
    ids = torch.tensor([pipeline.tokenizer.encode(TEXTS[0])])  # type: ignore[union-attr]
    layer = pipeline.active_layer(positions, None).layer
    for ours, vectors in (
        (scene.similarity.row, layer.token_embedding(ids)[0]),
        (scene.similarity.hidden, layer(ids).detach()[0]),
    ):
        x = vectors.double()
        theirs = functional.cosine_similarity(x[:, None], x[None], dim=-1)
        torch.testing.assert_close(torch.tensor(ours, dtype=torch.float64), theirs, rtol=0, atol=1e-5)
    assert scene.similarity.tokens == list(range(ids.shape[1]))
    assert (scene.similarity.row == scene.similarity.hidden) == (positions == "rotary")
    later = describe_scene(pipeline, TEXTS, first_token=2).similarity
    assert later.tokens == list(range(2, ids.shape[1]))
    assert later.row[0][0] == 1.0


def test_swapped_tokens_permute_the_cosines_of_rows() -> None:
    before, after = (describe_scene(sample("default"), [TEXTS[0]], change=Change(swap=swap)) for swap in (None, (0, 2)))
    order = [2, 1, 0, *range(3, before.tokens)]
    assert after.similarity.row == [[before.similarity.row[i][j] for j in order] for i in order]


def test_rows_without_a_direction_and_values_that_are_not_finite() -> None:
    layer = Embeddings(257, 4, positions="none", padding_idx=256, seed=0)
    with torch.no_grad():
        layer.token_embedding.weight[97] = 0
        layer.token_embedding.weight[98, 1] = float("nan")
        layer.token_embedding.weight[99, 2] = float("inf")
    scene = describe_scene(Pipeline.from_layer(layer, ByteTokenizer(), source="test"), ["abcd"])
    assert [[one is None for one in row] for row in scene.similarity.row] == [[True] * 4] * 3 + [[True] * 3 + [False]]
    strip = decoded(scene.strips.row, 1, 4)[0]
    assert (strip == -128).nonzero().tolist() == [[1, 1], [2, 2]]
    assert (strip[0] == 0).all()


def test_size_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCENE_VALUES", 80)
    monkeypatch.setattr(module, "MAX_COMPARED", 3)
    scene = describe_scene(random_bytes("none"), ["abcdefghij", "b"])
    assert (scene.shape, scene.tokens) == ((2, 10, 8), 5)
    assert len(base64.b64decode(scene.strips.row.values)) == 80
    assert scene.similarity.tokens == [0, 1, 2]
    empty = describe_scene(random_bytes("none"), [""])
    assert (empty.tokens, empty.similarity.row) == (0, [])
    with pytest.raises(InputError, match="texts is empty"):
        describe_scene(random_bytes("none"), [])


def test_frequencies_of_all_pairs() -> None:
    (rotary,) = describe_scene(sample("default"), ["a"]).rotary
    assert rotary.frequencies == plain_frequencies(32, 10_000.0).tolist()
    assert describe_scene(sample("default"), ["a"], change=Change(positions="none")).rotary == []
    assert len(describe_scene(family("gemma3_text-new"), ["dogs"]).rotary) == 2


@pytest.mark.parametrize("pipeline", [sample("default"), random_bytes("none", 3)], ids=["large", "small"])
def test_table_scene_has_real_values(pipeline: Pipeline) -> None:
    sample = pipeline.table_scene
    values = np.frombuffer(base64.b64decode(sample.values), np.int8).reshape(len(sample.rows), len(sample.channels))
    rows, width = sample.shape
    assert (len(sample.rows), len(sample.channels)) == (min(rows, 256), min(width, 192))
    assert (sample.rows[0], sample.rows[-1], sample.channels[-1]) == (0, rows - 1, width - 1)
    assert sample.rows == sorted(set(sample.rows))
    stored = pipeline.layer.token_embedding(torch.tensor(sample.rows))[:, sample.channels].detach()
    close(torch.from_numpy(values.copy()), quantized(stored, sample.scale))
