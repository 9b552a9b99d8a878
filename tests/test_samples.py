"""The default sample, as it is shipped: small, whole, labelled, and better than chance."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import inlayer
from inlayer.checkpoint.samples import find_sample, open_sample
from inlayer.families import describe

FOLDER = Path(inlayer.__file__).parent / "samples" / "default"
LIMIT = 3_000_000  # bytes, of the whole folder
LEFT_OUT = ("nigg", "fuck", "shit", "bitch", "cunt", "whore", "slut", "fagg")

# Words that belong together; in each row every word is one token of the sample.
RELATED = [
    ["king", "queen", "prince"],
    ["mother", "father", "daughter", "son"],
    ["two", "three", "four", "five", "six"],
    ["red", "blue", "green", "white", "black"],
    ["January", "April", "June", "September"],
    ["London", "Paris", "York"],
    ["war", "fight", "attack"],
    ["water", "sea", "air"],
    ["money", "pay", "buy", "cash"],
    ["music", "film", "movie"],
]


@pytest.fixture(scope="module")
def store():
    return open_sample("default")


@pytest.fixture(scope="module")
def table(store):
    return store.table("model.embed_tokens.weight").weight


def test_it_is_small_and_only_data():
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert set(files) == {"README.md", "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert sum(files.values()) < LIMIT


def test_it_is_labelled_where_it_shows(store):
    assert store.note.startswith("sample: ")
    assert "trained by inlayer itself" in store.note
    assert find_sample("default").path == FOLDER
    assert "sample" in (FOLDER / "README.md").read_text().splitlines()[0]


def test_tokenizer_config_and_table_agree(store, table):
    spec, tokenizer = describe(store.config), store.open_tokenizer()
    assert table.shape == (spec.vocab_size, spec.n_embd)
    assert tokenizer.get_vocab_size() == spec.vocab_size
    assert spec.head.tied
    assert tokenizer.encode("<pad>") == [spec.padding_idx]
    assert tokenizer.encode("<|endoftext|>") == [store.config["eos_token_id"]]
    assert tokenizer.decode(tokenizer.encode("I love dogs, 3 cafés")) == "I love dogs, 3 cafés"


def test_only_the_padding_row_is_zero(store, table):
    zero = (table == 0).all(1).nonzero().flatten().tolist()
    assert zero == [store.config["pad_token_id"]]
    assert table.isfinite().all()


def test_no_token_is_a_slur(store):
    tokenizer = store.open_tokenizer()
    tokens = [tokenizer.decode([token]).lower() for token in range(tokenizer.get_vocab_size())]
    assert not [token for token in tokens for word in LEFT_OUT if word in token]


def test_transformers_reads_it(table):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    theirs = model.get_input_embeddings().weight
    assert torch.equal(theirs, table)
    assert model.get_output_embeddings().weight is theirs
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    assert tokenizer("I love dogs").input_ids == inlayer.open_tokenizer(FOLDER).encode("I love dogs")


def neighbour_rank(rows, first, second):
    """How many of all rows are nearer to the first than the second is."""
    likeness = functional.cosine_similarity(rows, rows[first][None])
    return int((likeness > likeness[second]).sum()) - 1


def test_related_words_are_nearer_than_by_chance(store, table):
    tokenizer = store.open_tokenizer()
    groups = [[tokenizer.encode(f" {word}") for word in words] for words in RELATED]
    assert all(len(ids) == 1 for group in groups for ids in group)
    pairs = [(a, b) for group in groups for (a,) in group for (b,) in group if a != b]
    shipped = table.float()
    random = torch.randn(table.shape, generator=torch.Generator().manual_seed(0))
    ranks, by_chance = (
        torch.tensor([neighbour_rank(rows, first, second) for first, second in pairs]) for rows in (shipped, random)
    )
    assert ranks.median() < 100  # of some thousands
    assert by_chance.median() > 1000  # control


def test_the_readme_names_what_is_there():
    text, config = (FOLDER / "README.md").read_text(), json.loads((FOLDER / "config.json").read_text())
    assert f"{config['vocab_size']:,} x {config['hidden_size']}" in text
    assert "scripts.make_default" in text
