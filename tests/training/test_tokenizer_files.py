"""A saved tokenizer gives the same ids in inlayer.load and in transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

import inlayer
from inlayer.errors import MissingFileError, TokenizerError
from inlayer.training.export import save_decoder, tokenizer_files
from tests.training.models import make_decoder

TEXTS = ["Hi", "", " two  spaces\n\tand a tab", "naïve 日本語 🙂", "\x00\x7f don't 123", "<s>", "<|endoftext|>"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    (folder / "corpus.txt").write_text("the cat sat on the mat; the dog sat on the cat. " * 9)
    inlayer.train_bpe(folder / "corpus.txt", 272, folder / "mine.json", special_tokens=["<s>", "<pad>"])
    inlayer.train_bpe(folder / "corpus.txt", 272, folder, special_tokens=["<s>", "<pad>"])
    return folder


@pytest.mark.parametrize("architecture", ["gpt", "llama"])
def test_byte_tokenizer(architecture: str, tmp_path: Path) -> None:
    save_decoder(make_decoder(architecture, vocab_size=256), tmp_path, tokenizer=inlayer.ByteTokenizer())
    ours, theirs = inlayer.load(tmp_path).tokenizer, AutoTokenizer.from_pretrained(tmp_path)
    assert ours is not None
    assert ours.get_vocab_size() == 256
    for text in TEXTS:
        expected = list(text.encode())
        assert ours.encode(text) == expected == theirs(text)["input_ids"]
        assert ours.decode(expected) == text == theirs.decode(expected)
        assert ours.tokens(text) == inlayer.ByteTokenizer().tokens(text)


@pytest.mark.parametrize(("architecture", "name"), [("gpt", "."), ("llama", "tokenizer.json"), ("gpt", "mine.json")])
def test_trained_tokenizer_is_copied(architecture: str, name: str, trained: Path, tmp_path: Path) -> None:
    save_decoder(make_decoder(architecture, vocab_size=272), tmp_path, tokenizer=trained / name)
    assert (tmp_path / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()
    original, theirs = inlayer.open_tokenizer(trained), AutoTokenizer.from_pretrained(tmp_path)
    ours = inlayer.load(tmp_path).tokenizer
    assert ours is not None
    for text in [*TEXTS, "the cat sat"]:
        assert ours.encode(text) == original.encode(text) == theirs(text)["input_ids"]


def test_tokenizer_config_prevents_an_id_outside_the_table(trained: Path, tmp_path: Path) -> None:
    save_decoder(make_decoder("gpt", vocab_size=272), tmp_path, tokenizer=trained)
    assert len(AutoTokenizer.from_pretrained(tmp_path)) == 272
    (tmp_path / "tokenizer_config.json").unlink()
    assert AutoTokenizer.from_pretrained(tmp_path)("<|endoftext|>")["input_ids"] == [272]


def test_existing_tokenizer_config_is_kept(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((trained / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": "<pad>"}')
    for given in (tmp_path, tmp_path / "tokenizer.json"):
        assert tokenizer_files(given)["tokenizer_config.json"] == b'{"pad_token": "<pad>"}'


def test_damaged_or_missing_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="without a tokenizer"):
        tokenizer_files(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(TokenizerError):
        tokenizer_files(tmp_path)
