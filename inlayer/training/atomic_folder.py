"""Atomic replacement of folders and tensor files: written next to the target, then swapped in.

- files are synced before the swap, the parent folder after it: a power cut leaves the old folder or the new one
- Linux swaps two folders in one call. Elsewhere the old one is renamed first; after a kill between the two renames it
  is found at `.NAME.old`, and the next writer restores it
- leftovers of a killed writer (`.NAME.saving`) are removed by the next one. There is one writer at a time
- a folder is only replaced if nothing in it would be lost: a file that the new one lacks is an error
Tested with a failure at every stage in tests/training/test_atomic_folder.py.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from inlayer.errors import InlayerError, InputError
from inlayer.files import atomic_path, check_path, path_kind, shown, sync

__all__ = ["replace_folder", "write_tensors"]

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # from <fcntl.h> and <linux/fs.h>


@contextmanager
def replace_folder(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty folder that replaces `folder` if the block succeeds, and is removed if it fails.

    An OSError within the block, such as a full disk, becomes an InputError that names the folder.
    """
    target = check_path(folder, "folder").expanduser().resolve()  # a link keeps pointing to the new folder
    if path_kind(target) not in {"folder", "missing"} or not target.name:
        raise InputError(f"{shown(folder)} cannot be written: it is not a folder, or it is the root folder")
    new, old = (target.with_name(f".{target.name}.{state}") for state in ("saving", "old"))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if old.exists() and not target.exists():
            old.rename(target)
        for leftover in (new, old):
            if leftover.exists():
                shutil.rmtree(leftover)
        new.mkdir()
        yield new
        _check_nothing_lost(target, {path.name for path in new.iterdir()})
        _sync_all(new)
        _swap_in(new, target, old)
        sync(target.parent)
    except InlayerError:  # includes MissingFileError, which is an OSError about another file
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{shown(folder)} cannot be written: {reason}; the previous contents are unchanged") from error
    finally:
        # After a swap these are the replaced folder. Failing to remove it does no harm.
        for leftover in (new, old) if target.exists() else (new,):
            with suppress(OSError):
                shutil.rmtree(leftover)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file atomically."""
    with atomic_path(path) as new:
        try:
            save_file(dict(tensors), new, metadata=metadata)
        except SafetensorError as error:  # safetensors reports a full disk this way
            raise OSError(str(error)) from error


def _check_nothing_lost(folder: Path, names: Collection[str]) -> None:
    lost = sorted({path.name for path in folder.iterdir()}.difference(names)) if folder.exists() else []
    if lost:
        raise InputError(
            f"{shown(folder)} contains {shown(lost[0])}, which would be lost, because saving replaces the folder; "
            "choose another folder, or remove the file"
        )


def _sync_all(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent) / name)
        sync(Path(parent))


def _swap_in(new: Path, target: Path, old: Path) -> None:
    """Move `new` to `target`; the previous folder ends up at `new` or `old`."""
    if not target.exists():
        new.rename(target)
    elif not _exchange(new, target):
        target.rename(old)
        try:
            new.rename(target)
        except BaseException:
            old.rename(target)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically; False if the system cannot."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # a C library without it
        return False
    result: int = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return result == 0
