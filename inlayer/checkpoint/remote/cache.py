"""A bounded cache on disk: ranges of remote files, and whole files made from them.

[checkpoint] -> Embeddings, Head, tokenizer
- one SQLite database for all ranges, in huggingface_hub's folder for other libraries (HF_ASSETS_CACHE, below HF_HOME).
  A key contains the URL (the commit included), the size and the ETag
- the least recently used entries are deleted when a limit is exceeded
- a cache can always be lost: a range with a wrong checksum is fetched again, a damaged database is recreated, and a
  folder that cannot be written or a full disk only means that nothing is kept
- each query opens its own connection, which is safe for threads, forks and concurrent processes
Tested in tests/checkpoint/remote/test_cache.py.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

from inlayer.checkpoint.remote.transfer import Span, UnreachableError

__all__ = ["DiskCache", "digest", "open_cache"]

Result = TypeVar("Result")

DATABASE = "ranges-2.sqlite"  # the number of the schema below
SCHEMA = """
    CREATE TABLE IF NOT EXISTS ranges (
        key TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL, checksum INTEGER NOT NULL,
        data BLOB NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (key, start, stop));
"""
USED_BYTES = """SELECT (page_count - freelist_count) * page_size
    FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()"""
DELETE_OLDEST = """DELETE FROM ranges WHERE rowid IN
    (SELECT rowid FROM ranges ORDER BY used, rowid LIMIT (SELECT COUNT(*) / 4 + 1 FROM ranges))"""
VALUE = (0, 0)  # the span of a value that is not a range of a file
MAX_RANGE = 64 << 20  # bytes
MAX_DATABASE = 2 << 30  # bytes
MAX_FILES = 32 << 30  # bytes: tables that were downloaded whole, tokenizers
LOCK_TIMEOUT = 10.0  # seconds to wait for another process's write
DAY = 86_400


def open_cache() -> DiskCache:
    """The cache of this user; one without a folder keeps nothing."""
    from huggingface_hub import cached_assets_path, constants

    try:
        return DiskCache(cached_assets_path("inlayer", "remote", "v2", assets_dir=constants.HF_ASSETS_CACHE))
    except (OSError, ValueError):  # not writable, or a file in place of a folder
        return DiskCache(None)


def digest(*parts: object) -> str:
    """A key for anything, secret or not."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:40]


class DiskCache:
    """Ranges, versions and files below a folder, or nothing at all."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, key: str, spans: Iterable[Span]) -> dict[Span, bytes]:
        """Those of the spans that are cached and intact."""

        def query(connection: sqlite3.Connection) -> dict[Span, bytes]:
            found, now = {}, int(time.time())
            for span in spans:
                where, values = "WHERE key = ? AND start = ? AND stop = ?", (key, *span)
                row = connection.execute(f"SELECT checksum, data, used FROM ranges {where}", values).fetchone()
                if row is not None and zlib.crc32(row[1]) == row[0]:
                    found[span] = row[1]
                    if row[2] < now - DAY:
                        with suppress(sqlite3.OperationalError):  # a database that can only be read
                            connection.execute(f"UPDATE ranges SET used = ? {where}", (now, *values))
            return found

        return self._run(query, {})

    def put(self, key: str, ranges: Mapping[Span, bytes]) -> None:
        """Keep these ranges, except very large ones."""
        small = [(span, data) for span, data in ranges.items() if len(data) <= MAX_RANGE]
        rows = [(key, *span, zlib.crc32(data), data, int(time.time())) for span, data in small]

        def write(connection: sqlite3.Connection) -> None:
            connection.executemany("INSERT OR REPLACE INTO ranges VALUES (?, ?, ?, ?, ?, ?)", rows)
            while connection.execute(USED_BYTES).fetchone()[0] > MAX_DATABASE:
                if not connection.execute(DELETE_OLDEST).rowcount:
                    break

        self._run(write, None)

    def load(self, key: str) -> Any:
        """A JSON value, or None."""
        found = self.get(key, [VALUE])
        return json.loads(found[VALUE]) if found else None

    def save(self, key: str, value: object) -> None:
        """Keep a JSON value."""
        self.put(key, {VALUE: json.dumps(value).encode()})

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
        """A folder for whole files; marks it as used and deletes the least recently used ones past the limit."""
        if self.folder is None:
            return None
        folder = self.folder / "files" / key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
        except OSError:
            return None
        total = 0
        with suppress(OSError):  # another process deletes them as well
            for other in sorted(folder.parent.iterdir(), key=lambda other: -other.stat().st_mtime):
                total += sum(file.stat().st_size for file in other.iterdir())
                if total > MAX_FILES and other != folder:
                    shutil.rmtree(other, ignore_errors=True)
        return folder

    def _run(self, work: Callable[[sqlite3.Connection], Result], default: Result, *, again: bool = True) -> Result:
        """The result of one transaction, or the default if the database cannot be used."""
        if self.folder is None:
            return default
        path = self.folder / DATABASE
        try:
            with closing(sqlite3.connect(path, timeout=LOCK_TIMEOUT)) as connection, connection:
                connection.executescript(SCHEMA)
                return work(connection)
        except sqlite3.OperationalError:  # read-only, full, or locked for too long
            return default
        except (sqlite3.DatabaseError, TypeError, ValueError):  # not a database, a damaged one, or one with odd values
            with suppress(OSError):
                path.unlink(missing_ok=True)
                path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
            return self._run(work, default, again=False) if again else default
