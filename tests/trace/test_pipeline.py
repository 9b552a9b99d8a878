"""Pipelines: single tokens, threads, random tables, initialization."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import inlayer
from inlayer.errors import DtypeError, IdRangeError, InlayerError, InputError
from inlayer.tensors import to_tensor
from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline
from inlayer.trace.token_facts import describe_token, initialize
from tests.trace.pipelines import SAMPLES, family, random_bytes, sample  # some are slow tests


@pytest.mark.parametrize("name", SAMPLES)
def test_token_facts_match_the_table(name: str) -> None:
    pipeline, model = sample(name), inlayer.load(name)
    token_id = model.tokenizer.encode("dogs", add_special_tokens=False)[0]
    facts = describe_token(pipeline, token_id, k=5)
    row = to_tensor(model.table.rows(token_id))
    assert facts.row == row[:512].tolist()
    assert facts.bytes == model.tokenizer.token_bytes(token_id).hex()
    table = to_tensor(model.table.weight).float()
    cosines = torch.nn.functional.cosine_similarity(table, row.float()[None])
    cosines[token_id] = -2
    best = cosines.nan_to_num(-2).topk(5)
    assert [other.id for other in facts.neighbors] == best.indices.tolist()
    torch.testing.assert_close(torch.tensor([other.cosine for other in facts.neighbors]), best.values)
    assert facts.norm == pytest.approx(float(row.float().norm()))


def test_zero_rows_and_invalid_ids() -> None:
    pipeline = sample("default")
    assert pipeline.padding_id is not None
    assert "zeros" in describe_token(pipeline, pipeline.padding_id).note
    for bad in (-1, 6144, 10**30):
        with pytest.raises(IdRangeError):
            describe_token(pipeline, bad)
    with pytest.raises(InputError, match="k is"):
        describe_token(pipeline, 5, k=10**6)
    bare = Pipeline.from_layer(inlayer.Embeddings(5, 4, seed=0), None, source="bare")
    assert describe_token(bare, 3).label == "#3"


def test_rows_beyond_the_vocabulary_are_named_by_number() -> None:
    pipeline = Pipeline.random(["a"], ByteTokenizer())
    assert describe_token(pipeline, 256).label == "#256"


def test_model_facts() -> None:
    facts = sample("default").facts()
    assert (facts.name, facts.shape, facts.dtype, facts.positions, facts.tied) == (
        "default", (6144, 128), "BF16", "rotary", True,
    )  # fmt: skip
    assert sample("minilm").facts().tied is None


def test_threads_share_a_pipeline() -> None:
    pipeline = Pipeline(inlayer.load())
    texts = [f"I love {word} and {word}" for word in ["dogs", "cats", "rain", "May", "tea", "snow", "books", "songs"]]
    wanted = [sample("default").walk([text]) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: pipeline.walk([text]), texts * 5))
    assert found == wanted * 5


def test_caches_belong_to_one_pipeline_and_are_freed_with_it() -> None:
    one, other = (Pipeline.random(["a"], ByteTokenizer()) for _ in range(2))
    layers = [pipeline.active_layer("none", None) for pipeline in (one, one, other)]
    assert layers[0] is layers[1]
    assert layers[0] is not layers[2]
    freed = weakref.ref(layers[0].layer)
    del one, layers
    gc.collect()
    assert freed() is None


def test_walk_leaves_the_layer_unchanged() -> None:
    pipeline = family("bert")
    before = {name: value.clone() for name, value in pipeline.layer.state_dict().items()}
    plain = pipeline.walk(["I love dogs"])
    for scheme in ("none", "learned", "sinusoidal", "rotary"):
        pipeline.walk(["I love dogs"], change=Change(positions=scheme))
    assert pipeline.walk(["I love dogs"]) == plain
    assert all(torch.equal(value, before[name]) for name, value in pipeline.layer.state_dict().items())


def test_random_pipeline_depends_on_the_seed() -> None:
    one, same, other = (Pipeline.random(["ab"], ByteTokenizer(), seed=seed).walk(["ab"]) for seed in (1, 1, 2))
    assert one == same
    assert one.texts[0].tokens[0].row != other.texts[0].tokens[0].row
    assert one.padding.is_zero
    with pytest.raises(InlayerError, match="width"):
        Pipeline.random(["a"], ByteTokenizer(), width=2**22)


def test_layer_without_tokenizer_accepts_vectors() -> None:
    pipeline = Pipeline.from_layer(inlayer.Embeddings(5, 4, seed=0), None, source="bare")
    with pytest.raises(InputError, match="no tokenizer"):
        pipeline.walk(["a"])
    assert pipeline.walk(None, inputs_embeds=torch.zeros(1, 1, 4)).shape == (1, 1, 4)
    with pytest.raises(InlayerError):
        pipeline.walk(None, inputs_embeds=torch.zeros(1, 1, 5))
    with pytest.raises(InputError, match="inputs_embeds"):
        pipeline.walk(None, inputs_embeds=torch.zeros(1, 1, 4), change=Change(pad=1))
    with pytest.raises(DtypeError, match=r"tokenizer is a str; pass a tokenizer, such as inlayer.ByteTokenizer\(\) or"):
        inlayer.walk("hi", tokenizer="bytes")
    with pytest.raises(InputError, match="tokenizer does not apply to a Pipeline"):  # it would be ignored
        inlayer.walk("a", pipeline, tokenizer=ByteTokenizer())


def test_initialization_steps() -> None:
    """Three steps; the last has small numbers and a zero padding row, as inlayer's own Table does."""
    facts = initialize(sample("default"), seed=3)
    drawn, initialized, zeroed = facts.steps
    assert drawn.std == pytest.approx(1, abs=0.01)
    assert initialized.std == pytest.approx(facts.init_std, rel=0.01)
    index = facts.ids.index(facts.padding_idx or -1)
    assert not any(drawn.rows[index])
    assert any(initialized.rows[index])  # the model's own initialization overwrites it
    assert not any(zeroed.rows[index])
    assert [row for at, row in enumerate(zeroed.rows) if at != index] == [
        row for at, row in enumerate(initialized.rows) if at != index
    ]
    assert sum(zeroed.counts) > 0.99 * facts.vocab_size * facts.width
    assert initialize(sample("default"), seed=3) == facts
    assert initialize(sample("default"), seed=4) != facts
    assert len(initialize(random_bytes("none")).steps) == 3
    assert len(initialize(Pipeline.from_layer(inlayer.Embeddings(5, 4), None, source="bare")).steps) == 2
