"""load, open_store: find out what a source is (a folder, a file, a sample or a hub id) and open it.

source -> [Store] -> Model
- an unknown source is reported before anything large is imported, numpy included
- local paths come first: a folder with the name of a sample is opened as the folder
- the format of a folder, in order of preference: model*.safetensors, pytorch_model*.bin, GGUF, then any safetensors or
  .bin file, because there may be adapters and value heads next to a model. The format of a file is in its first bytes
- a sentence-transformers folder (modules.json) without weights of its own is opened at its first module
- URLs (hf://, https://, s3://, gs://) are remote. So are hub ids, `org/name` or `org/name@revision`, unless such a path
  exists
Tested in tests/checkpoint/test_folder.py and test_samples.py, remote sources in tests/checkpoint/remote/.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from inlayer.errors import CheckpointError, MissingFileError
from inlayer.files import check_path, not_a_file, path_kind, shown

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.checkpoint.store import Store

__all__ = ["DEFAULT", "load", "open_store"]

STATIC = "static embeddings: one vector per token, no positions or head"
DEFAULT = "default"  # the bundled sample model
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*(@[\w./-]+)?", re.ASCII)
URL = re.compile(r"[a-z][a-z0-9+.-]*://")
FILE_SUFFIXES = (".safetensors", ".gguf", ".bin", ".pt", ".pth", ".json", ".ckpt")  # no hub id ends in one
MAX_MODULES = 1 << 20  # bytes of a modules.json
ZIP, PICKLE, GGUF = b"PK\x03\x04", b"\x80", b"GGUF"


def load(source: str | os.PathLike[str] | None = None, *, dtype: object = None, trainable: bool = False) -> Model:
    """Open a checkpoint's embedding layer without loading the model.

    Args:
        source: A folder, a .safetensors, .gguf or old .bin file, a hub id (`org/name`, `org/name@revision`), or the
            name of a sample; by default the bundled sample model.
        dtype: Convert rows to this dtype: a name such as "float32", a numpy dtype or a torch dtype. By default, rows
            keep the dtype of the file.
        trainable: Read the rows into memory when `embeddings` and `head` are used, so that they can be trained and
            resized. By default they stay in the file, and the layer is frozen.

    Returns:
        The opened checkpoint. Only headers have been read.

    Raises:
        MissingFileError: If there is no such source.
        CheckpointError: If its files are damaged or contain no embedding table.

    Example:
        >>> load("default").table.rows([1, 2]).shape
        (2, 128)
    """
    source, target = DEFAULT if source is None else source, None
    if dtype is not None:
        from inlayer.formats.safetensors import as_float_dtype

        target = as_float_dtype(dtype)
    store = open_store(source)

    from inlayer.checkpoint.model import Model

    model = Model(store, target, trainable=trainable)
    model._arguments = source, target
    return model


def open_store(source: str | os.PathLike[str]) -> Store:
    """Open a checkpoint: a folder, a .safetensors, .gguf or old .bin file, a sample, a hub id, or a URL."""
    path = check_path(source, "source")
    if isinstance(source, str) and URL.match(source):
        from inlayer.checkpoint.remote import open_remote

        return open_remote(source)
    path = path.expanduser() if str(path).startswith("~") else path
    kind = path_kind(path)
    if kind == "folder":
        return _open_folder(path)
    if kind == "file":
        return _open_file(path)
    if kind != "missing":
        raise not_a_file(path, kind)
    return _open_name(os.fspath(source))


def _open_name(name: str) -> Store:
    from inlayer.checkpoint.samples import SAMPLES, open_sample

    if name in SAMPLES:
        return open_sample(name)
    if HUB_ID.fullmatch(name) and not name.endswith(FILE_SUFFIXES):
        from inlayer.checkpoint.remote import UnreachableError, open_remote

        try:
            return open_remote(name)
        except UnreachableError as error:
            raise UnreachableError(
                f"{error}; check your network, and note that {shown(name)} is not a local folder"
            ) from error
    raise MissingFileError(
        f"{shown(name)}: not found; a source is a folder, a .safetensors or .gguf file, a hub id (org/name), or a "
        f"sample: {', '.join(SAMPLES)}"
    )


def _open_folder(folder: Path) -> Store:
    kind, name = _first_module(folder)
    inner = name and path_kind(folder / name) == "folder" and not any(folder.glob("*.safetensors"))
    store = _open_weights(folder / name if inner else folder)
    if kind == "StaticEmbedding":
        store.config, store.note = None, STATIC
    return store


def _open_weights(folder: Path) -> Store:
    from inlayer.checkpoint.folder import INDEX, FolderStore

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
        raise CheckpointError(f"{shown(folder)} has several .gguf files; open one of them: {', '.join(firsts[:8])}")
    if firsts:
        return _open_file(folder / firsts[0])
    if any(name.endswith(".safetensors") for name in names):
        return FolderStore(folder)
    if any(name.endswith(".bin") for name in names):
        return _open_pytorch(folder)
    raise MissingFileError(f"{shown(folder)} has no weights; expected *.safetensors, *.gguf or pytorch_model.bin")


def _first_module(folder: Path) -> tuple[str, str]:
    """Class and subfolder of the first module of a sentence-transformers model; empty if there is none."""
    import json

    try:
        with (folder / "modules.json").open("rb") as stream:
            module = json.loads(stream.read(MAX_MODULES))[0]
        kind, name = str(module["type"]).rpartition(".")[2], str(module["path"])
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return "", ""
    return kind, name if re.fullmatch(r"[\w-]+", name, re.ASCII) else ""


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
        raise CheckpointError(f"{shown(path)} does not start like a safetensors, GGUF or PyTorch file")

    from inlayer.checkpoint.folder import FolderStore

    return FolderStore(path)
