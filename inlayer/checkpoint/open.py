"""open_store: what a source is, a folder, a file, a sample or a hub id, and its store.

source -> [Store] -> Model
- what is there on this machine wins: a folder called like a sample is the folder
- the formats of a folder, in order: model*.safetensors, pytorch_model*.bin, GGUF, and then whatever safetensors or .bin
  file there is: beside a model may lie adapters and value heads. Of a file, by its first bytes
- URLs (hf://, https://, s3://, gs://) are remote. So are hub ids, `org/name` or `org/name@revision`, unless such a path
  exists
Checked in tests/checkpoint/test_folder.py and test_samples.py, remote sources in tests/checkpoint/remote/.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from inlayer.checkpoint.store import Store
from inlayer.errors import CheckpointError, MissingFileError
from inlayer.paths import check_path, shown, what_is_at, wrong_kind

__all__ = ["DEFAULT", "open_store"]

DEFAULT = "default"  # the sample that inlayer carries
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?", re.ASCII)
URL = re.compile(r"[a-z][a-z0-9+.-]*://")
FILES = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".json", ".ckpt")  # never the name of a hub's model
ZIP, PICKLE, GGUF = b"PK\x03\x04", b"\x80", b"GGUF"


def open_store(source: str | os.PathLike[str]) -> Store:
    """Open a checkpoint: a folder, a .safetensors, .gguf or old .bin file, a sample's name, or a hub id."""
    path = check_path(source, "source")
    if isinstance(source, str) and URL.match(source):
        from inlayer.checkpoint.remote import open_remote

        return open_remote(source)
    path = path.expanduser() if str(path).startswith("~") else path
    kind = what_is_at(path)
    if kind == "folder":
        return _open_folder(path)
    if kind == "file":
        return _open_file(path)
    if kind != "nothing":
        raise wrong_kind(path, kind)
    return _open_name(os.fspath(source))


def _open_name(name: str) -> Store:
    from inlayer.checkpoint.samples import SAMPLES, open_sample

    if name in SAMPLES:
        return open_sample(name)
    if HUB_ID.fullmatch(name) and not name.endswith(FILES):
        from inlayer.checkpoint.remote import UnreachableError, open_remote

        try:
            return open_remote(name)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}; check your network, and note that {shown(name)} is not a local folder"
            ) from error
    raise MissingFileError(
        f"{shown(name)} is not there; a source is a folder, a .safetensors or .gguf file, a hub id (org/name), or a "
        f"sample: {', '.join(SAMPLES)}"
    )


def _open_folder(folder: Path) -> Store:
    from inlayer.checkpoint.folder import FolderStore
    from inlayer.checkpoint.shards import INDEX

    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise MissingFileError(f"{shown(folder)} cannot be read: {error.strerror}") from error
    if INDEX in names or any(name.startswith("model") and name.endswith(".safetensors") for name in names):
        return FolderStore(folder)
    if any(name.startswith("pytorch_model") and name.endswith((".bin", ".bin.index.json")) for name in names):
        return _open_pytorch(folder)
    ggufs = [name for name in names if name.endswith(".gguf")]
    firsts = [name for name in ggufs if re.search(r"-0*1-of-\d+\.gguf$", name)] or ggufs
    if len(firsts) > 1:
        raise CheckpointError(f"{shown(folder)} holds several .gguf files; name one: {', '.join(firsts[:8])}")
    if firsts:
        return _open_file(folder / firsts[0])
    if any(name.endswith(".safetensors") for name in names):
        return FolderStore(folder)
    if any(name.endswith(".bin") for name in names):
        return _open_pytorch(folder)
    raise MissingFileError(f"{shown(folder)} holds no weights; looked for *.safetensors, *.gguf and pytorch_model.bin")


def _open_pytorch(path: Path) -> Store:
    from inlayer.checkpoint.pytorch import PytorchStore

    return PytorchStore(path)


def _open_file(path: Path) -> Store:
    try:
        with path.open("rb") as stream:
            start = stream.read(9)
    except OSError as error:
        raise MissingFileError(f"{shown(path)} cannot be read: {error.strerror}") from error
    if start.startswith(GGUF) or path.suffix == ".gguf":
        from inlayer.checkpoint.gguf import GgufStore

        return GgufStore(path)
    if path.suffix != ".safetensors" and start.startswith((ZIP, PICKLE)):
        return _open_pytorch(path)
    if path.name == "config.json" or path.name.endswith(".index.json"):
        return _open_folder(path.parent)

    if path.suffix != ".safetensors" and start[8:] != b"{":
        raise CheckpointError(
            f"{shown(path)} is neither a safetensors, nor a GGUF, nor a PyTorch file by its first bytes"
        )

    from inlayer.checkpoint.folder import FolderStore

    return FolderStore(path)
