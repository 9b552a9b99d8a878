"""A hub on this machine that huggingface_hub, as configured for one test, takes for the real one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inlayer.checkpoint.remote import transfer
from tests.checkpoint.remote.server import Hub


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Nothing is in the caches, nobody is logged in, and waiting is short."""
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
    monkeypatch.setattr(transfer, "FIRST_WAIT", 0.01)
    yield served
    served.stop()
