"""One tokenizer of each kind, as in tests/tokenizers; the commands in this process; a model of two words."""

import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from inlayer.cli import main
from tests.tokenizers.conftest import small_json, training_file
from tests.tokenizers.test_contract import tokenizer

__all__ = ["small_json", "tokenizer", "training_file"]


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run a command in this process, in `tmp_path`; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["inlayer", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        out = capsys.readouterr()
        return int(stopped.value.code or 0), out.out, out.err

    return call


@pytest.fixture
def two_words(tmp_path: Path) -> Path:
    """A model that knows the words "dog" and "fox" and cannot encode any other."""
    folder = tmp_path / "m"
    folder.mkdir()
    save_file({"embeddings": np.array([[1, 2], [3, 4]], np.float32)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "model2vec"}')
    Tokenizer(WordLevel({"dog": 0, "fox": 1}, unk_token="?")).save(str(folder / "tokenizer.json"))
    return folder
