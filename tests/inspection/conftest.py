"""Fixtures: a healthy checkpoint and its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from inlayer.inspection import Report, inspect
from tests.inspection.healthy import make_llama, tokenizer_bytes


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("llama")
    make_llama(home, tokenizer_bytes(tmp_path_factory.mktemp("tokenizer")))
    return home


@pytest.fixture(scope="session")
def report(folder: Path) -> Report:
    return inspect(folder)
