"""A healthy checkpoint, and what the doctor says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlayer.inspection import Report, inspect
from tests.inspection.healthy import make_llama, tokenizer_bytes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("llama")
    make_llama(home, tokenizer_bytes(tmp_path_factory.mktemp("tokenizer")))
    return home


@pytest.fixture(scope="module")
def report(folder: Path) -> Report:
    return inspect(folder)
