"""A bounded cache on disk: ranges of remote files, and whole files made from them.

[checkpoint] -> Embeddings, Head, tokenizer
- one folder per key, in huggingface_hub's folder for other libraries (HF_ASSETS_CACHE, below HF_HOME). The key of a
  remote file contains its URL (the commit included), size and ETag; each range of it is a file with a checksum
- the least recently used folders are deleted when the limit is exceeded
- a cache can always be lost: a damaged range is fetched again, and a folder that cannot be written or a full disk only
  means that nothing is kept
Tested in tests/checkpoint/remote/test_cache.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from inlayer.checkpoint.remote.transfer import Span, UnreachableError

__all__ = ["DiskCache", "digest", "open_cache"]

Result = TypeVar("Result")

MAX_RANGE = 64 << 20  # bytes
MAX_BYTES = 32 << 30
CHECKSUM = 4  # bytes before those of the range


def open_cache() -> DiskCache:
    """The cache of this user; one without a folder keeps nothing."""
    from huggingface_hub import cached_assets_path, constants

    try:
        return DiskCache(cached_assets_path("inlayer", "remote", "v3", assets_dir=constants.HF_ASSETS_CACHE))
    except (OSError, ValueError):  # not writable, or a file in place of a folder
        return DiskCache(None)


def digest(*parts: object) -> str:
    """A key for anything, secret or not."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:40]


class DiskCache:
    """Ranges, values and files below a folder, or nothing at all."""

    def __init__(self, folder: Path | None) -> None:
        self.folder, self._trimmed = folder, False

    def get(self, key: str, spans: Iterable[Span]) -> dict[Span, bytes]:
        """Those of the spans that are cached and intact."""
        found: dict[Span, bytes] = {}
        if self.folder is None:
            return found
        for start, stop in spans:
            with suppress(OSError):
                data = (self.folder / key / f"{start}-{stop}").read_bytes()
                if checksum(data[CHECKSUM:]) == data[:CHECKSUM]:
                    found[start, stop] = data[CHECKSUM:]
        return found

    def put(self, key: str, ranges: Mapping[Span, bytes]) -> None:
        """Keep these ranges, except very large ones."""
        folder = self.make_folder(key)
        for (start, stop), data in ranges.items():
            if folder is not None and len(data) <= MAX_RANGE:
                temporary = folder / f".{secrets.token_hex(8)}"
                with suppress(OSError):
                    temporary.write_bytes(checksum(data) + data)
                    temporary.replace(folder / f"{start}-{stop}")
                temporary.unlink(missing_ok=True)

    def load(self, key: str) -> Any:
        """A JSON value, or None."""
        found = self.get(key, [(0, 0)])
        return json.loads(found[0, 0]) if found else None

    def save(self, key: str, value: object) -> None:
        """Keep a JSON value."""
        self.put(key, {(0, 0): json.dumps(value).encode()})

    def last_known(self, key: str, request: Callable[[int], Result]) -> Result:
        """What `request(attempts)` returns; if the server cannot be reached, what it returned the last time."""
        known = self.load(key)
        try:
            found = request(0 if known is None else 1)
        except UnreachableError:
            if known is None:
                raise
            return known  # type: ignore[no-any-return]
        if found != known:
            self.save(key, found)
        return found

    def make_folder(self, key: str) -> Path | None:
        """The folder of a key, marked as used; None if it cannot be written. Deletes others past the limit once."""
        if self.folder is None:
            return None
        folder, total = self.folder / key, 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        except OSError:
            return None
        with suppress(OSError):  # another process deletes them as well
            for other in () if self._trimmed else sorted(self.folder.iterdir(), key=lambda path: -path.stat().st_mtime):
                total += sum(file.stat().st_size for file in other.iterdir())
                if total > MAX_BYTES and other != folder:
                    shutil.rmtree(other, ignore_errors=True)
        self._trimmed = True
        return folder


def checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(CHECKSUM, "little")
