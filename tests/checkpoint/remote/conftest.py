"""Fixtures: a local hub, in place of the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inlayer.checkpoint.remote import transfer
from tests.checkpoint.remote.server import Hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A local hub with empty caches, no login, and short waits."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    served, home = Hub(), tmp_path / "huggingface"
    monkeypatch.setattr(constants, "ENDPOINT", served.endpoint)
    template = served.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr(constants, "HF_ASSETS_CACHE", str(home / "assets"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(home / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(transfer, "INITIAL_BACKOFF", 0.01)
    yield served
    served.stop()
