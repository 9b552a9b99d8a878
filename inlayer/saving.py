"""The floor: a file that is there whole or not at all, and one writer at a time.

- a file is written beside its place, reaches the disk, and is put there in one step: a crash leaves the old or the new
- a lock ends with the process that holds it, however that ends; where the system or its file system has no such locks,
  nothing is held
- not here: whole folders (training/folder.py)
Checked in tests/training/test_folder.py and, with processes that are killed, in tests/learn/test_progress.py.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from inlayer.errors import InputError
from inlayer.paths import shown

__all__ = ["locked", "put", "putting", "sync", "write_whole"]

PAUSE = 0.02  # seconds between two tries for a lock


def put(path: Path, data: bytes) -> None:
    """A file, whole or not at all, in place of what was there."""
    with putting(path) as fresh:
        fresh.write_bytes(data)


def write_whole(path: Path, data: bytes) -> None:
    """A file where a user wants it: `put` for any number of writers, with InputError where it cannot be written."""
    beside = path.with_name(f".{path.name[:60]}.{secrets.token_hex(4)}.part")
    try:
        try:
            with beside.open("xb") as part:
                part.write(data)
            sync(beside)
            beside.replace(path)
        finally:
            with suppress(OSError):  # gone when all went well
                beside.unlink()
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be written: {error.strerror}") from error


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
def locked(path: Path, busy: str, *, wait: float = 0.0) -> Iterator[None]:
    """Hold a file while the block lasts. InputError, ending in `busy`, where another holds it for `wait` seconds."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with path.open("ab") as file:
        end = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise InputError(f"{shown(path.parent)} is in use: {busy}") from None
                time.sleep(PAUSE)
                continue
            except OSError:
                pass
            break
        yield


def sync(path: Path) -> None:
    """Wait until a file, or what a folder lists, has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        # Not every file system can do it for a folder, and those need it not.
        with suppress(OSError) if path.is_dir() else nullcontext():
            os.fsync(handle)
    finally:
        os.close(handle)
