"""The parts of a hub file that were read so far: fetched once, kept, and there the next time without a network.

[checkpoint] -> Embeddings, Head, tokenizer
- one SQLite database a commit of a repository, in huggingface_hub's folder for other libraries (HF_ASSETS_CACHE); a
  commit never changes, so nothing in it grows old
- it is a cache and behaves as one: a part whose checksum is wrong is fetched again, a damaged database is thrown away
  and made anew, a folder that cannot be written or a disk that is full only means that nothing is kept
- a connection lives for one question: safe for threads, forks and several processes at once
- a file that huggingface_hub already downloaded as a whole is read from there
- not here: the requests (checkpoint/remote/transfer.py), rows and whole tables (checkpoint/remote/remote.py)
Checked in tests/checkpoint/remote/test_ranges.py.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from inlayer.checkpoint.remote.transfer import AbsentError, Facts, Place, fetch
from inlayer.errors import CheckpointError
from inlayer.paths import shown

__all__ = ["RangeCache", "RemoteFile", "cache_folder"]

Answer = TypeVar("Answer")
Span = tuple[int, int]  # first byte, and the one after the last

ABSENT = Facts(size=-1, etag="")  # a file the commit does not have is worth remembering too
DATABASE = "ranges-1.sqlite"  # the number is that of the tables below
TABLES = """
    CREATE TABLE IF NOT EXISTS files (file TEXT PRIMARY KEY, size INTEGER NOT NULL, etag TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS ranges (
        file TEXT NOT NULL, start INTEGER NOT NULL, stop INTEGER NOT NULL,
        checksum INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (file, start, stop));
"""
LARGEST_PART = 64 << 20  # bytes
PATIENCE = 10.0  # seconds to wait for another process's write


def cache_folder(repo_id: str, commit: str) -> Path | None:
    """Where what was read of a commit is kept; None where nothing can be."""
    from huggingface_hub import cached_assets_path, constants

    try:
        return cached_assets_path("inlayer", repo_id, commit, assets_dir=constants.HF_ASSETS_CACHE)
    except (OSError, ValueError):  # not writable; a file where a folder should be
        return None


class RangeCache:
    """Ranges of files and their facts, kept in a folder, or nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def get(self, file: str, spans: Iterable[Span]) -> dict[Span, bytes]:
        """Those of the spans that are here, and whole."""

        def ask(connection: sqlite3.Connection) -> dict[Span, bytes]:
            query = "SELECT checksum, data FROM ranges WHERE file = ? AND start = ? AND stop = ?"
            rows = ((span, connection.execute(query, (file, *span)).fetchone()) for span in spans)
            return {span: row[1] for span, row in rows if row is not None and zlib.crc32(row[1]) == row[0]}

        return self._run(ask, {})

    def put(self, file: str, parts: Mapping[Span, bytes]) -> None:
        """Keep these parts, unless they are too large for a database."""
        small = ((span, data) for span, data in parts.items() if len(data) <= LARGEST_PART)
        rows = [(file, *span, zlib.crc32(data), data) for span, data in small]
        self._write("INSERT OR REPLACE INTO ranges VALUES (?, ?, ?, ?, ?)", rows)

    def get_facts(self, file: str) -> Facts | None:
        """What is known about a file, if anything is."""

        def ask(connection: sqlite3.Connection) -> Facts | None:
            row = connection.execute("SELECT size, etag FROM files WHERE file = ?", (file,)).fetchone()
            return Facts(size=row[0], etag=row[1]) if row is not None else None

        return self._run(ask, None)

    def put_facts(self, file: str, facts: Facts) -> None:
        """Keep what is known about a file."""
        self._write("INSERT OR REPLACE INTO files VALUES (?, ?, ?)", [(file, facts.size, facts.etag)])

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        def write(connection: sqlite3.Connection) -> None:
            connection.executemany(statement, rows)

        if rows:
            self._run(write, None)

    def _run(self, work: Callable[[sqlite3.Connection], Answer], default: Answer, *, again: bool = True) -> Answer:
        """The work done in one transaction, or the default where the database cannot be used."""
        if self.folder is None:
            return default
        path = self.folder / DATABASE
        try:
            with closing(sqlite3.connect(path, timeout=PATIENCE)) as connection, connection:
                connection.executescript(TABLES)
                return work(connection)
        except sqlite3.OperationalError:  # read-only, full, or locked for too long
            return default
        except (sqlite3.DatabaseError, TypeError):  # no database, a torn one, or one with strange values in it
            with suppress(OSError):
                path.unlink(missing_ok=True)
                path.with_name(f"{path.name}-journal").unlink(missing_ok=True)
            return self._run(work, default, again=False) if again else default


class RemoteFile:
    """A file of a commit, of which any range can be read."""

    def __init__(self, place: Place, cache: RangeCache, local: Path | None = None) -> None:
        self.place, self.cache, self.local = place, cache, local
        self._facts: Facts | None = None

    @property
    def facts(self) -> Facts | None:
        """Its size and identity, if a request was ever answered."""
        if self._facts is None:
            self._facts = self.cache.get_facts(self.place.file)
        return self._facts

    @property
    def size(self) -> int:
        """Its length in bytes; known as soon as anything was read."""
        if self.local is not None:
            return self.local.stat().st_size
        if self.facts is None:
            self.fetch(0, 1)
        assert self.facts is not None
        return self.facts.size

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start..stop - 1, fewer only where the file ends before; fetched at most once, ever."""
        if self.local is not None or start >= stop:
            return self.fetch(start, stop)
        kept = self.cache.get(self.place.file, [(start, stop)])
        if kept and self.facts is not None:
            return kept[start, stop]
        data = self.fetch(start, stop)
        self.cache.put(self.place.file, {(start, stop): data})
        return data

    def fetch(self, start: int, stop: int) -> bytes:
        """The same, and nothing is kept."""
        if start >= stop:
            return b""
        if self.local is not None:
            return _read_local(self.local, start, stop)
        if self.facts == ABSENT:
            raise AbsentError(f"{self.place} is not there: the repository has no such file")
        try:
            data, facts = fetch(self.place, start, stop, self.facts)
        except AbsentError:
            self.cache.put_facts(self.place.file, ABSENT)
            raise
        if self._facts != facts:
            self._facts = facts
            self.cache.put_facts(self.place.file, facts)
        return data


def _read_local(path: Path, start: int, stop: int) -> bytes:
    try:
        with path.open("rb") as stream:
            stream.seek(start)
            return stream.read(stop - start)
    except OSError as error:
        raise CheckpointError(f"{shown(path)} cannot be read: {error.strerror}") from error
