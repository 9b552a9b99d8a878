"""Files and folders that are there whole or not at all: written beside their place, then put there in one step.

- the files reach the disk before the step and the step itself after it: a power cut leaves the old folder or the new
- Linux swaps two folders in one call. Where the system or its file system cannot, the old one steps aside first; if a
  kill falls between the two steps, it is at `.NAME.old` beside, and the next writer puts it back
- what a killed writer left behind (`.NAME.saving`) is removed by the next one. One writer at a time
- a folder is only replaced where nothing in it would be lost: a file that the new one lacks is an error
Checked with a failure at every stage in tests/train/test_folder.py.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from inlayer.errors import InlayerError, InputError
from inlayer.paths import check_path, shown, what_is_at

__all__ = ["check_nothing_is_lost", "locked", "put", "put_tensors", "replacing", "sync"]

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


def put(path: Path, data: bytes) -> None:
    """A file, whole or not at all, in place of what was there."""
    with putting(path) as fresh:
        fresh.write_bytes(data)


def put_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """The same with a safetensors file."""
    with putting(path) as fresh:
        try:
            save_file(dict(tensors), fresh, metadata=metadata)
        except SafetensorError as error:  # a full disk, in the words of another language
            raise OSError(str(error)) from error


@contextmanager
def putting(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to, which becomes `path` when the block ends well, and goes when not."""
    fresh = path.with_name(f".{path.name}.saving")
    try:
        yield fresh
        fresh.chmod(0o644)  # safetensors would have its owner read it alone
        sync(fresh)
        fresh.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file for as long as the block lasts; InputError where another process holds it. It ends with the process.

    Where the system or its file system has no such locks, nothing is held.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{shown(path.parent)} is in use: another process trains there") from None
        except OSError:
            pass
        yield


def _to_disk(folder: Path) -> None:
    for parent, _, names in os.walk(folder):
        for name in names:
            sync(Path(parent) / name)
        sync(Path(parent))


def sync(path: Path) -> None:
    """Wait until a file, or what a folder lists, has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        # Not every file system can do it for a folder, and those need it not.
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(handle)
    finally:
        os.close(handle)


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
