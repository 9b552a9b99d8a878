"""Remote checkpoints: hub repositories and URLs, read by byte range.

source -> [remote files] -> Store -> Model
- not supported: legacy PyTorch files, which cannot be read by byte range; the error explains how to download them
Tested with a local hub and other servers in tests/checkpoint/remote/test_remote_store.py.
"""

from __future__ import annotations

from inlayer.checkpoint.gguf_store import GgufStore, choose_gguf
from inlayer.checkpoint.remote.source import parse_source
from inlayer.checkpoint.remote.transfer import UnreachableError, open_cache
from inlayer.checkpoint.store import FolderStore, Store
from inlayer.errors import needs_package

__all__ = ["UnreachableError", "open_remote"]


def open_remote(source: str) -> Store:
    """Open `org/name[@revision]`, `hf://org/name`, or a folder or file at a URL."""
    modules = "huggingface_hub", "fsspec"
    with needs_package("a remote checkpoint", " and ".join(modules), "'inlayer[hub]'", *modules):
        import fsspec  # noqa: F401
        import huggingface_hub  # noqa: F401
    folder, file = parse_source(source, open_cache())
    names = folder.list_names() or ()
    if file is None and not any(name.endswith(".safetensors") for name in names):
        file = choose_gguf(names, folder.prefix)
    if file is not None and file.endswith(".gguf"):
        return GgufStore(folder, file)
    try:
        return FolderStore(folder, file)
    except UnreachableError as error:  # the message names the given source, not the first file that is read
        if file is None:
            raise
        message = str(error).replace(str(folder.open("config.json")), folder.describe(file))
        raise UnreachableError(message) from error.__cause__
