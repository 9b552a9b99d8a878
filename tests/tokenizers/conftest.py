"""A small tokenizer.json for all tests, trained here so that no download is needed."""

from pathlib import Path

import pytest

from inlayer.tokenizers import train_bpe

TRAINING_TEXT = (
    "It's the first day of the rest of the year; the dogs, the cats and the birds aren't here.\n"
    "def f(x):\n    return x + 1\n\nDie Straße führt über die Brücke. 你好，世界。你好。 Привет, мир! привет\n"
) * 3


@pytest.fixture(scope="session")
def training_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "train.txt"
    path.write_text(TRAINING_TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def small_json(training_file: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("small")
    train_bpe(training_file, 340, folder, special_tokens=["<s>", "<|end|>"])
    return (folder / "tokenizer.json").read_bytes()
