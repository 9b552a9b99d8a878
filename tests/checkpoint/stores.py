"""Stores of local paths, opened directly, whatever the name of the file says about its format."""

from __future__ import annotations

from pathlib import Path

from inlayer.checkpoint.folder import LocalFolder
from inlayer.checkpoint.gguf_store import GgufStore
from inlayer.checkpoint.store import PytorchStore


def open_gguf(path: Path) -> GgufStore:
    return GgufStore(LocalFolder(path.parent), path.name)


def open_pytorch(path: Path) -> PytorchStore:
    return PytorchStore(LocalFolder(path)) if path.is_dir() else PytorchStore(LocalFolder(path.parent), path.name)
