"""Tests of the course never touch the progress of the person who runs them."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder."""
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("INLAYER_DATA", str(folder))
    return folder
