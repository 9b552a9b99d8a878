"""Lines: one token by itself, other positions, many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import inlayer
from inlayer.errors import IdRangeError, InlayerError, InputError
from inlayer.tokenizers import ByteTokenizer
from inlayer.trace import Change, Pipeline, random_pipeline
from tests.trace.lines import SAMPLES, bytes_line, family, sample


@pytest.mark.parametrize("name", SAMPLES)
def test_one_token(name: str) -> None:
    line, model = sample(name), inlayer.load(name)
    assert model.tokenizer is not None
    token_id = model.tokenizer.encode("dogs", add_special_tokens=False)[0]
    facts = line.token(token_id, k=5)
    row = torch.from_numpy(model.table.rows(token_id))
    assert facts.row == row[:512].tolist()
    assert facts.bytes == model.tokenizer.token_bytes(token_id).hex()
    table = torch.from_numpy(model.table.weight).float()
    cosines = torch.nn.functional.cosine_similarity(table, row.float()[None])
    cosines[token_id] = -2
    best = cosines.nan_to_num(-2).topk(5)
    assert [other.id for other in facts.neighbors] == best.indices.tolist()
    torch.testing.assert_close(torch.tensor([other.cosine for other in facts.neighbors]), best.values)
    assert facts.norm == pytest.approx(float(row.float().norm()))


def test_a_token_that_points_nowhere_or_is_none() -> None:
    line = sample("default")
    assert line.padding_id is not None
    assert "zeros" in line.token(line.padding_id).note
    for bad in (-1, 6144, 10**30):
        with pytest.raises(IdRangeError):
            line.token(bad)
    with pytest.raises(InputError, match="k is"):
        line.token(5, k=10**6)
    bare = Pipeline.of_layer(None, inlayer.Embeddings(5, 4, seed=0), source="bare")
    assert bare.token(3).label == "#3"


def test_rows_past_the_vocabulary_have_a_number_for_a_name() -> None:
    line = random_pipeline(["a"], ByteTokenizer())
    assert line.token(256).label == "#256"


def test_facts() -> None:
    facts = sample("default").facts()
    assert (facts.name, facts.shape, facts.dtype, facts.positions, facts.tied) == (
        "default", (6144, 128), "BF16", "rotary", True,
    )  # fmt: skip
    assert sample("minilm").facts().tied is None


def test_many_threads_walk_one_line() -> None:
    line = Pipeline(inlayer.load())
    texts = [f"I love {word} and {word}" for word in ["dogs", "cats", "rain", "May", "tea", "snow", "books", "songs"]]
    wanted = [sample("default").walk([text]) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda text: line.walk([text]), texts * 5))
    assert found == wanted * 5


def test_a_walk_changes_nothing() -> None:
    line = family("bert")
    before = {name: value.clone() for name, value in line.layer.state_dict().items()}
    plain = line.walk(["I love dogs"])
    for scheme in ("none", "learned", "sinusoidal", "rotary"):
        line.walk(["I love dogs"], change=Change(positions=scheme))
    assert line.walk(["I love dogs"]) == plain
    assert all(torch.equal(value, before[name]) for name, value in line.layer.state_dict().items())


def test_newborn() -> None:
    one, same, other = (random_pipeline(["ab"], ByteTokenizer(), seed=seed).walk(["ab"]) for seed in (1, 1, 2))
    assert one == same
    assert one.texts[0].cells[0].row != other.texts[0].cells[0].row
    assert one.padding.zero
    with pytest.raises(InlayerError, match="width"):
        random_pipeline(["a"], ByteTokenizer(), width=2**22)


def test_a_layer_without_a_tokenizer_takes_vectors() -> None:
    line = Pipeline.of_layer(None, inlayer.Embeddings(5, 4, seed=0), source="bare")
    with pytest.raises(InputError, match="no tokenizer"):
        line.walk(["a"])
    assert line.walk(None, inputs_embeds=torch.zeros(1, 1, 4)).shape == (1, 1, 4)
    with pytest.raises(InlayerError):
        line.walk(None, inputs_embeds=torch.zeros(1, 1, 5))
    with pytest.raises(InputError, match="vectors came"):
        line.walk(None, inputs_embeds=torch.zeros(1, 1, 4), change=Change(pad=1))


def test_birth() -> None:
    """Three moments; the last is what inlayer's own Table is: small numbers and a padding row of zeros."""
    birth = sample("default").birth(seed=3)
    drawn, initialized, zeroed = birth.stages
    assert drawn.std == pytest.approx(1, abs=0.01)
    assert initialized.std == pytest.approx(birth.init_std, rel=0.01)
    place = birth.ids.index(birth.padding_idx or -1)
    assert not any(drawn.rows[place])
    assert any(initialized.rows[place])  # the model's own init draws over it
    assert not any(zeroed.rows[place])
    assert [row for at, row in enumerate(zeroed.rows) if at != place] == [
        row for at, row in enumerate(initialized.rows) if at != place
    ]
    assert sum(zeroed.counts) > 0.99 * birth.vocab_size * birth.width
    assert sample("default").birth(seed=3) == birth
    assert sample("default").birth(seed=4) != birth
    assert len(bytes_line("none").birth().stages) == 3
    assert len(Pipeline.of_layer(None, inlayer.Embeddings(5, 4), source="bare").birth().stages) == 2
