"""Folders and files of tensors, there whole or not at all: written beside their place, then put there in one step.

- the files reach the disk before the step and the step itself after it: a power cut leaves the old folder or the new
- Linux swaps two folders in one call. Where the system or its file system cannot, the old one steps aside first; if a
  kill falls between the two steps, it is at `.NAME.old` beside, and the next writer puts it back
- what a killed writer left behind (`.NAME.saving`) is removed by the next one. One writer at a time
- a folder is only replaced where nothing in it would be lost: a file that the new one lacks is an error
Checked with a failure at every stage in tests/training/test_folder.py.
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
from inlayer.paths import check_path, shown, what_is_at
from inlayer.saving import putting, sync

__all__ = ["check_nothing_is_lost", "put_tensors", "replacing"]

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # from <fcntl.h> and <linux/fs.h>


@contextmanager
def replacing(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty folder to write into; it takes the place of `folder` when the block ends well, and goes when not.

    An OSError within the block becomes an InputError that names the folder: a disk may be full.
    """
    place = check_path(folder, "folder").expanduser().resolve()  # of a link, what it leads to
    if what_is_at(place) not in {"folder", "nothing"} or not place.name:
        raise InputError(f"{shown(folder)} cannot be written: it is no folder, or the root of all")
    fresh, old = (place.with_name(f".{place.name}.{state}") for state in ("saving", "old"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        if old.exists() and not place.exists():
            old.rename(place)
        for left in (fresh, old):
            if left.exists():
                shutil.rmtree(left)
        fresh.mkdir()
        yield fresh
        check_nothing_is_lost(place, {path.name for path in fresh.iterdir()})
        _to_disk(fresh)
        _put(fresh, place, old)
        sync(place.parent)
    except InlayerError:  # among them a MissingFileError, which is an OSError, about another file
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"{shown(folder)} cannot be written: {reason}; what was there before is untouched") from error
    finally:
        # After the step they are the folder that was replaced. Not being able to remove it makes nothing wrong.
        for left in (fresh, old) if place.exists() else (fresh,):
            with suppress(OSError):
                shutil.rmtree(left)


def check_nothing_is_lost(folder: Path, names: Collection[str]) -> None:
    """Raise InputError where the folder holds a file that is not among those about to be written."""
    lost = sorted({path.name for path in folder.iterdir()}.difference(names)) if folder.exists() else []
    if lost:
        raise InputError(
            f"{shown(folder)} holds {shown(lost[0])}, which would be lost: what is saved replaces the folder; give one "
            "of its own, or remove what is in it"
        )


def put_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """A safetensors file, whole or not at all, in place of what was there."""
    with putting(path) as fresh:
        try:
            save_file(dict(tensors), fresh, metadata=metadata)
        except SafetensorError as error:  # a full disk, in the words of another language
            raise OSError(str(error)) from error


def _to_disk(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent) / name)
        sync(Path(parent))


def _put(fresh: Path, place: Path, old: Path) -> None:
    """The step: `fresh` becomes `place`; what was there is at `fresh` or `old` afterwards."""
    if not place.exists():
        fresh.rename(place)
    elif not _exchange(fresh, place):
        place.rename(old)
        try:
            fresh.rename(place)
        except BaseException:
            old.rename(place)
            raise


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where that is not to be had."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # a C library without it
        return False
    done: int = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return done == 0
