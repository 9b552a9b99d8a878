"""Atomic writes of new folders and tensor files: written under another name, synced, then renamed.

- a kill or a power cut leaves nothing or the whole folder; the next writer removes what a killed one left
- an existing folder is never replaced, unless it is empty
Tested with a failure at every stage in tests/training/test_atomic_folder.py.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from inlayer.errors import InlayerError, InputError
from inlayer.files import atomic_path, check_path, path_kind, shown, sync

__all__ = ["new_folder", "write_tensors"]


@contextmanager
def new_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a folder for files, which becomes `folder` if the block succeeds, and is removed if it fails.

    An OSError within the block, such as a full disk, becomes an InputError that names the folder.
    """
    target = check_path(folder, "folder").expanduser().resolve()
    if path_kind(target) != "missing" and (path_kind(target) != "folder" or any(target.iterdir())):
        raise InputError(f"{shown(folder)} cannot be written: it already exists; choose another folder")
    new = target.with_name(f".{target.name}.saving")
    try:
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        yield new
        for path in (*new.iterdir(), new):
            sync(path)
        new.rename(target)
        sync(target.parent)
    except InlayerError:  # includes MissingFileError, which is an OSError about another file
        raise
    except OSError as error:
        raise InputError(f"{shown(folder)} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    with atomic_path(path) as new:
        try:
            save_file(dict(tensors), new, metadata=metadata)
        except SafetensorError as error:  # safetensors reports a full disk this way
            raise OSError(str(error)) from error
