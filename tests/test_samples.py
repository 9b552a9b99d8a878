"""The bundled sample model: small, complete, labeled and better than chance; and the script that made it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

import inlayer
from inlayer.checkpoint.open import find_sample, open_sample
from inlayer.families import describe
from inlayer.geometry.projection import load_cached, table_fingerprint
from inlayer.tensors import to_tensor
from inlayer.training.decoder import Decoder
from scripts import make_default
from tests.training.texts import write_text

FOLDER = Path(inlayer.__file__).parent / "samples" / "default"
MAX_BYTES = 3_000_000  # for the whole folder
EXCLUDED = ("nigg", "fuck", "shit", "bitch", "cunt", "whore", "slut", "fagg")

# Groups of related words; each word is a single token of the sample.
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
    return to_tensor(store.table("model.embed_tokens.weight").weight)


def test_folder_is_small_and_has_only_data():
    files = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    (coordinates,) = FOLDER.glob("*-tsne.npz")
    assert set(files) == {
        "README.md", "config.json", "metrics.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
        coordinates.name,
    }  # fmt: skip
    assert sum(files.values()) < MAX_BYTES


def test_store_and_readme_label_it_as_a_sample(store):
    assert store.note.startswith("sample: ")
    assert "trained with inlayer" in store.note
    assert find_sample("default")[0] == FOLDER
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


def test_no_token_contains_a_slur(store):
    tokenizer = store.open_tokenizer()
    tokens = [tokenizer.decode([token]).lower() for token in range(tokenizer.get_vocab_size())]
    assert not [token for token in tokens for word in EXCLUDED if word in token]


def test_transformers_reads_it(table):
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    theirs = model.get_input_embeddings().weight
    assert torch.equal(theirs, table)
    assert model.get_output_embeddings().weight is theirs
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    assert tokenizer("I love dogs").input_ids == inlayer.open_tokenizer(FOLDER).encode("I love dogs")


def neighbor_rank(rows, first, second):
    """The number of rows closer to the first than the second is."""
    similarity = functional.cosine_similarity(rows, rows[first][None])
    return int((similarity > similarity[second]).sum()) - 1


def test_related_words_are_closer_than_chance(store, table):
    tokenizer = store.open_tokenizer()
    groups = [[tokenizer.encode(f" {word}") for word in words] for words in RELATED]
    assert all(len(ids) == 1 for group in groups for ids in group)
    pairs = [(a, b) for group in groups for (a,) in group for (b,) in group if a != b]
    shipped = table.float()
    random = torch.randn(table.shape, generator=torch.Generator().manual_seed(0))
    ranks, by_chance = (
        torch.tensor([neighbor_rank(rows, first, second) for first, second in pairs]) for rows in (shipped, random)
    )
    assert ranks.median() < 100  # of several thousand
    assert by_chance.median() > 1000  # control


@torch.no_grad()
def test_language_model_prefers_english(store):
    """English has a lower loss than the same tokens shuffled, and those a lower one than random tokens."""
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32).eval()
    tokenizer = store.open_tokenizer()
    text = "".join(f" {line}\n" for line in ("I don't know what you want me to do.", "It was the best day of my life."))
    ids = torch.tensor([tokenizer.encode(text)])
    shuffled = ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]
    random_ids = torch.randint(256, model.config.vocab_size - 2, ids.shape, generator=torch.Generator().manual_seed(0))
    losses = [float(model(given, labels=given).loss) for given in (ids, shuffled, random_ids)]
    assert losses[0] < metrics()["loss"]["frequencies"] - 2
    assert losses[0] + 1 < losses[1] < losses[2]


# ---- its README


def metrics():
    return json.loads((FOLDER / "metrics.json").read_text())


def test_readme_states_the_shape():
    text, config = (FOLDER / "README.md").read_text(), json.loads((FOLDER / "config.json").read_text())
    assert f"{config['vocab_size']:,} x {config['hidden_size']}" in text
    assert "scripts.make_default" in text


def test_readme_states_the_measurements():
    text, measured = (FOLDER / "README.md").read_text(), metrics()
    rows = dict(re.findall(r"^\| ([\w-]+) \| (.*) \|$", text, re.MULTILINE))
    for name, found in measured["similarity"].items():
        assert rows[name].split(" | ") == [
            f"{found['pairs']}",
            *(f"{found[table]:.2f}" for table in ("random", "counts", "rounded")),
        ]
    for loss in measured["loss"].values():
        assert f"{loss:.3f}" in text
    for count in (*measured["tokens"].values(), measured["tokens_seen"]):
        assert f"{count:,}" in text


def test_similarity_beats_random_rows():
    for name in ("MEN", "WordSim-353"):
        found = metrics()["similarity"][name]
        assert found["rounded"] > found["random"] + 0.2


# ---- the script that made it

CONFIG = replace(
    make_default.CONFIG, n_embd=16, n_inner=32, block_size=16, steps=6, batch_size=2, warmup_steps=1, save_interval=2
)
SMALL = {"vocab_size": 320, "config": CONFIG}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("corpus") / "text.txt", 300)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_text_makes_the_same_sample(corpus, tmp_path):
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    for name in make_default.EVALS.values():
        (pairs / name).write_text("dog\tfox\t9.5\nfox\ttable\t2\ndog\tdog\t10\ntable\tdog\t1.5\ndog\tcat\t8\n")
    made = []
    for name in ("one", "other"):
        reported = make_default.make(corpus, tmp_path / name, tmp_path / f"{name}-work", evals=pairs, **SMALL)
        made.append(files_of(tmp_path / name))
        assert json.loads(made[-1]["metrics.json"]) == reported
    assert made[0] == made[1]
    assert set(made[0]) | {"README.md"} == {path.name for path in FOLDER.iterdir() if path.suffix != ".npz"}
    assert {found["pairs"] for found in reported["similarity"].values()} == {3}
    assert reported["loss"]["trained"] == pytest.approx(reported["loss"]["rounded"], abs=0.05)

    before = (tmp_path / "one-work" / "trained" / "metrics.jsonl").read_bytes()
    make_default.make(corpus, tmp_path / "one", tmp_path / "one-work", evals=pairs, **SMALL)
    assert (tmp_path / "one-work" / "trained" / "metrics.jsonl").read_bytes() == before  # no step was repeated
    other = {**SMALL, "config": replace(CONFIG, steps=7)}
    with pytest.raises(SystemExit, match="other settings"):
        make_default.make(corpus, tmp_path / "one", tmp_path / "one-work", **other)


def test_sentences_start_with_a_space_and_swearing_is_dropped():
    assert make_default.choose("I am.\n  So are you. \nOh Shit!\nGood.\n") == " I am.\n So are you.\n Good."


@torch.no_grad()
def test_scaled_table_keeps_the_logits():
    config = replace(CONFIG, n_layer=2, init_std=0.5, input_scale=1.0, output_scale=1.0, block_size=64)
    decoder, ids = Decoder(config.decoder_config(50, padding_idx=7), seed=0).eval(), torch.arange(50)[None]
    smaller = make_default.shrink(decoder, 64.0).eval()
    assert torch.equal(smaller.logits(ids), decoder.logits(ids))
    assert torch.equal(smaller.embeddings(ids) * 64, decoder.embeddings(ids))
    assert not torch.equal(
        make_default.shrink(decoder, 3.0).eval().logits(ids), decoder.logits(ids)
    )  # control: other factors round


def test_the_bundled_map_belongs_to_the_table() -> None:
    """If this fails, the table has changed: run `python -m scripts.make_sample_map`."""
    table = inlayer.load("default").table
    assert [file.name for file in FOLDER.glob("*.npz")] == [f"{table_fingerprint(table)}-tsne.npz"]
    found = load_cached(table_fingerprint(table), "tsne", None)
    assert found is not None
    assert found.points.shape == (table.num_embeddings, 2)
    assert load_cached("0" * 32, "tsne", None) is None
