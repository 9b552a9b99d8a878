"""Remote files and their folders: a hub repository at one commit, or a folder at a URL.

source -> [remote files] -> Store -> Model
- a branch is resolved to a commit once, and everything is read from that commit. Offline, the last known commit
  is used
- plain HTTP servers cannot list a folder, so files are found by their usual names
- files already in the huggingface_hub cache are opened locally. Other files are read by range, and ranges are cached
- a file that may change (at any URL) is checked with the server once per process; offline, the last known version is
  used
Tested in tests/checkpoint/remote/test_remote_store.py, with faulty servers in test_transfer.py.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import secrets
import shutil
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import numpy as np

from inlayer.checkpoint.folder import Folder, is_plain_name
from inlayer.checkpoint.remote import transfer
from inlayer.checkpoint.remote.remote_rows import RemoteRows
from inlayer.checkpoint.remote.transfer import DiskCache, FileVersion, Span, TransferError, UnreachableError, digest
from inlayer.checkpoint.shard_index import INDEX
from inlayer.errors import CheckpointError, InputError, MissingFileError
from inlayer.files import atomic_path, format_path, printable
from inlayer.formats.row_reader import ByteFile, LocalFile
from inlayer.shapes import Bytes
from inlayer.tokenizers.open import SIBLINGS, choose_file

HUB_SOURCE = re.compile(
    r"(?:hf://)?(\w[\w.-]*/\w[\w.-]*)"  # org/name
    r"(?:@(?!.*\.\.)(\w[\w./+-]{0,199}?))?"  # @revision
    r"(?:/([^/]+\.(?:safetensors|gguf)))?/?",  # /file
    re.ASCII,
)
COMMIT = re.compile(r"[0-9a-f]{40}")
VERSION_FIELDS = ("ETag", "etag", "generation", "LastModified", "updated", "mtime", "created")  # keys of fsspec's info
CONCURRENT = 8  # requests
FIRST_BYTE = ((0, 1),)  # the smallest request; its response has the file's size and ETag
MAX_SMALL_FILE = 256 << 20  # bytes; the largest tokenizer files are 35 MB
MISSING = FileVersion(size=-1, etag="")  # the server reported that the file does not exist


class RemoteFile(ByteFile):
    """One remote file. Each range is read once, and then comes from the cache.

    `label` is for messages; it omits the query string and credentials, which may be secret. A `hub` file is part of a
    commit, so it never changes; its requests carry the hub's token.
    """

    min_read = 64 << 10  # the whole header of most files costs one request

    def __init__(self, url: str, label: str, cache: DiskCache, *, hub: bool = False) -> None:
        self.url, self.label, self.cache, self.hub = url, label, cache, hub
        self._version: FileVersion | None = None

    def __str__(self) -> str:
        return self.label

    def check_version(self) -> FileVersion | None:
        """Find the file's size and ETag, and return them; None if nothing is known until the first range is read.

        A file in the cache may have changed since, unless it is part of a commit: it is checked with the server
        once. If the server cannot be reached, the last known version is used. Raises MissingFileError for a file that
        does not exist.
        """
        known = self.cache.load(digest(self.url)) if self._version is None else None
        if known is not None:
            if not self.hub:
                with suppress(UnreachableError):
                    self._request(FIRST_BYTE, {}, attempts=1)
            self._version = self._version or FileVersion(*known)
        if self._version == MISSING:
            raise MissingFileError(f"{self} does not exist")
        return self._version

    @property
    def size(self) -> int:
        if self.check_version() is None:
            self._request(FIRST_BYTE, {})
        assert self._version is not None
        return self._version.size

    def read(self, start: int, stop: int) -> bytes:
        if start >= stop:
            return b""
        parts = self.read_cached([(start, stop)])
        if not parts:
            parts = self.fetch([(start, stop)])
            self.cache_ranges(parts)
        return parts[start, stop]

    def read_bytes(self, offset: int, nbytes: int) -> Bytes:
        data = np.frombuffer(bytearray(self.read(offset, offset + nbytes)), np.uint8)
        if len(data) != nbytes:
            raise transfer.truncated_error(self, offset + nbytes)
        return data

    def rows(self, offset: int, rows: int, row_bytes: int) -> RemoteRows:
        return RemoteRows(self, offset, rows, row_bytes)

    def read_cached(self, spans: Iterable[Span]) -> dict[Span, bytes]:
        """Return the spans that are already cached."""
        return self.cache.get(key, spans) if (key := self.key()) else {}

    def cache_ranges(self, ranges: dict[Span, bytes]) -> None:
        """Put ranges into the cache."""
        if key := self.key():
            self.cache.put(key, ranges)

    def key(self, *part: object) -> str:
        """Return the cache key of a part; empty without an ETag or date, because changes could not be detected."""
        version = self.check_version()
        return digest(self.url, version, *part) if version is not None and (version.etag or self.hub) else ""

    def fetch(self, spans: Sequence[Span], out: dict[Span, bytes] | None = None) -> dict[Span, bytes]:
        """Read spans without the cache. If one fails, the rest are still added to `out`."""
        out = {} if out is None else out
        self.check_version()
        self._request(spans, out)
        return out

    def _request(self, spans: Sequence[Span], out: dict[Span, bytes], attempts: int | None = None) -> None:
        """Request spans until all are in `out`. A span ends early only at the end of the file.

        The first response sets the version of the file, which is then cached. Another version is an error.
        """
        before = self._version

        def attempt() -> None:
            failures: list[Exception] = []
            missing = [span for span in spans if span not in out]
            for (start, stop), data in zip(missing, self._send(missing), strict=True):
                if not isinstance(data, bytes):
                    failures.append(transfer.convert_error(data, self.label))
                elif self._version is None or len(data) != min(stop, self._version.size) - start:
                    failures.append(TransferError(f"the server sent {len(data):,} bytes of {stop - start:,}"))
                else:
                    out[start, stop] = data
            if failures:  # an error that no retry can fix comes first
                raise min(failures, key=lambda failure: isinstance(failure, TransferError))

        part = f"bytes {min(spans)[0]:,}..{max(stop for _, stop in spans) - 1:,} of " if before else ""
        try:
            transfer.retry(attempt, f"cannot read {part}{self}", attempts)
        except MissingFileError:
            self._version = MISSING
            raise
        finally:
            if self._version is not None and self._version != before:
                self.cache.save(digest(self.url), self._version)

    def _send(self, spans: Sequence[Span]) -> list[Any]:
        """Return the bytes of each span, or the exception that it caused."""
        filesystem = transfer.open_filesystem(self.url.partition("://")[0], os.getpid())
        urls, starts, stops = [self.url] * len(spans), *map(list, zip(*spans, strict=True))
        try:
            if self.url.startswith("http"):  # the version comes with each response
                if self.hub:
                    transfer.check_online(self.label)
                request = {"label": self.label, "hub": self.hub, "accept": self._accept}
                return list(filesystem.cat_ranges(urls, starts, stops, batch_size=CONCURRENT, **request))
            size = self._accept(self._info(filesystem)).size
            if max(starts) >= size:
                raise transfer.truncated_error(self, max(starts))
            parts = list(filesystem.cat_ranges(urls, starts, [min(stop, size) for stop in stops]))
            self._accept(self._info(filesystem))
        except Exception as error:
            return [error] * len(spans)
        return parts

    def _info(self, filesystem: Any) -> FileVersion:
        filesystem.invalidate_cache(self.url)
        info = filesystem.info(self.url)
        if info.get("type") != "file":
            raise FileNotFoundError(self.url)
        etag = next((str(info[field]) for field in VERSION_FIELDS if info.get(field)), "")
        return FileVersion(int(info["size"]), transfer.one_line_error(etag.strip('"')))

    def _accept(self, version: FileVersion) -> FileVersion:
        """Accept the version of a response; raise an error if it differs from an earlier one."""
        before = self._version = self._version or version
        if version != before:
            change = f"{before.size:,} bytes with ETag {before.etag!r} to {version.size:,} with {version.etag!r}"
            raise CheckpointError(f"{self} changed on the server while it was being read, from {change}; open it again")
        return version


class RemoteFolder(Folder):
    """Files under one prefix."""

    remote = True
    label: str  # for messages and reports
    prefix: str  # the label of a file is this prefix and its name
    names: list[str] | None

    def __init__(self, cache: DiskCache) -> None:
        self.cache = cache
        self._opened = functools.cache(self._file)  # each file keeps its version, so changes are detected

    @abstractmethod
    def _file(self, name: str) -> ByteFile:
        """Return a file in the folder by its plain name."""

    def describe(self, file: str | None) -> str:
        return self.label if file is None else self.prefix + file

    def list_names(self) -> list[str] | None:
        return None if self.names is None else [name for name in self.names if is_plain_name(name)]

    def has(self, name: str) -> bool:
        if self.names is not None:
            return name in self.names
        try:
            return self.open(name).size >= 0
        except MissingFileError:
            return False

    def open(self, name: str) -> ByteFile:
        return self._opened(name)

    def local_path(self, name: str) -> Path:
        return self._save([name]) / name

    def find_tokenizer(self) -> Path | None:
        name = choose_file(self.list_names() or (), self.has, self.label)
        return None if name is None else self._save([name, "config.json", *SIBLINGS]) / name

    def _save(self, names: Iterable[str]) -> Path:
        """Download small files, skipping missing ones, to a local folder named by a hash of their content."""
        files = {name: self.open(name).read_all(MAX_SMALL_FILE) for name in names if self.has(name)}
        key = digest(*(f"{name} {digest(data)}" for name, data in files.items()))
        local = self.cache.make_folder(key, sum(map(len, files.values())))
        if local is None:
            local = Path(tempfile.mkdtemp(prefix="inlayer-"))
            atexit.register(shutil.rmtree, local, ignore_errors=True)
        for name, data in files.items():
            path = local / name
            if not path.is_file() or path.read_bytes() != data:
                with atomic_path(path, secrets.token_hex(4)) as temporary:  # another process may write the same file
                    temporary.write_bytes(data)
        return local


class HubFolder(RemoteFolder):
    """A model repository on the Hugging Face hub, at one commit."""

    kind = "hub"

    def __init__(self, repo_id: str, revision: str | None, cache: DiskCache) -> None:
        super().__init__(cache)
        self.repo_id = repo_id
        self.label = repo_id if revision is None else f"{repo_id}@{revision}"
        self.prefix = f"hf://{self.label}/"
        self.commit, self.names = self._look_up(revision or "main")

    def _file(self, name: str) -> ByteFile:
        from huggingface_hub import hf_hub_url, try_to_load_from_cache

        local = try_to_load_from_cache(self.repo_id, name, revision=self.commit)
        if isinstance(local, str):
            return LocalFile(Path(local))
        url, label = hf_hub_url(self.repo_id, name, revision=self.commit), f"{printable(name)} in {self.repo_id}"
        return RemoteFile(url, f"{label}@{self.commit[:8]}", self.cache, hub=True)

    def _look_up(self, revision: str) -> list[Any]:
        """Return the commit of a revision and its files, from the hub or as last known."""
        from huggingface_hub import constants

        key, error_prefix = digest("commit", constants.ENDPOINT, self.repo_id, revision), f"cannot look up {self.label}"
        known: list[Any] | None = self.cache.load(key) if COMMIT.fullmatch(revision) else None
        try:
            return known or self.cache.last_known(key, lambda: self._request(revision), error_prefix)
        except UnreachableError:
            if snapshot := self._find_snapshot(revision):
                return snapshot
            raise

    def _request(self, revision: str) -> list[Any]:
        from huggingface_hub import HfApi, errors

        transfer.check_online(self.label)
        commit, files = "", []
        try:
            info = HfApi(library_name="inlayer").model_info(
                self.repo_id, revision=revision, timeout=transfer.CONNECT_TIMEOUT, expand=["sha", "siblings"]
            )
            commit, files = info.sha or "", [file.rfilename for file in info.siblings or []]
        except errors.HfHubHTTPError as error:
            status, headers = error.response.status_code, error.response.headers
            raise transfer.status_error(status, headers, self.label, hub=True) from error
        except errors.HFValidationError as error:
            raise InputError(f"{self.label} is not a hub id: {transfer.one_line_error(str(error))}") from None
        except (errors.HTTPError, OSError) as error:
            raise TransferError(transfer.one_line_error(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError):
            pass  # the response does not come from a hub
        if not COMMIT.fullmatch(commit):
            raise CheckpointError(f"{self.label}: the server did not return a commit; does HF_ENDPOINT point to a hub?")
        return [commit, [file for file in files if "/" not in file]]

    def _find_snapshot(self, revision: str) -> list[Any] | None:
        """Return the commit that another library downloaded; None if finding its weights requires a listing."""
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(self.repo_id, revision=revision, local_files_only=True))
            files = sorted(path.name for path in folder.iterdir())
        except (OSError, ValueError):
            return None
        return [folder.name, files] if {INDEX, "model.safetensors"} & set(files) else None


class UrlFolder(RemoteFolder):
    """A folder at a URL of any file system that fsspec supports."""

    kind = "url"

    def __init__(self, url: str, cache: DiskCache) -> None:
        super().__init__(cache)
        self.http, self.query = url.startswith("http"), ""
        if self.http:
            parts = urlsplit(url)
            url, self.query = urlunsplit((*parts[:3], "", "")), f"?{parts.query}" if parts.query else ""
        self.base = url.rstrip("/") + "/"
        self.label = self.prefix = re.sub(r"://[^/@]*@", "://", self.base) if self.http else self.base
        error_prefix, key = f"cannot list {self.label}", digest("files", self.base)
        self.names = None if self.http else self.cache.last_known(key, self._list, error_prefix)

    def _file(self, name: str) -> RemoteFile:
        url = self.base + (quote(name) + self.query if self.http else name)
        return RemoteFile(url, printable(self.label + name), self.cache)

    def _list(self) -> list[str]:
        filesystem = transfer.open_filesystem(self.base.partition("://")[0], os.getpid())
        try:
            filesystem.invalidate_cache()
            entries = filesystem.ls(self.base, detail=True)
        except Exception as error:
            raise transfer.convert_error(error, self.label) from error
        return sorted(str(entry["name"]).rpartition("/")[2] for entry in entries if entry["type"] == "file")


def parse_source(source: str, cache: DiskCache) -> tuple[RemoteFolder, str | None]:
    """Return the folder that a hub id or URL refers to, and the file name if it refers to one file."""
    scheme, separator, rest = source.partition("://")
    if not separator or scheme == "hf":
        hub = HUB_SOURCE.fullmatch(source)
        if hub is None:
            raise InputError(
                f"{format_path(source)} is not a hub id, such as org/name, org/name@main, or hf://org/name"
            )
        return HubFolder(hub[1], hub[2], cache), hub[3]
    if scheme not in transfer.PACKAGES:
        allowed = ", ".join(f"{name}://" for name in ("hf", *transfer.PACKAGES))
        raise InputError(f"{format_path(source)} has the unknown scheme {scheme}://; use {allowed}, or a path")
    if not rest.strip("/") or "::" in source or not source.isprintable() or " " in source:
        raise InputError(f"{format_path(source)} is not a valid URL; an example is {scheme}://bucket/folder/")
    path = urlsplit(source).path if scheme.startswith("http") else source
    name = path.rpartition("/")[2]
    if name.endswith((".bin", ".pt", ".pth", ".json")):
        raise InputError(f"{printable(name)} cannot be read by byte range; download it and open the file")
    if not name.endswith((".safetensors", ".gguf")):
        return UrlFolder(source, cache), None
    before, _, after = source.rpartition(name)
    return UrlFolder(before + after, cache), name
