"""Remote folders: a hub repository at one commit, or a folder behind a URL, and the files in it.

[checkpoint] -> Embeddings, Head, tokenizer
- `org/name[@revision]` and `hf://org/name[@revision][/file]`: a branch is resolved to a commit once, and everything is
  read from that commit. Offline, it is the commit of the last time
- `s3://`, `gs://`, `https://`: a folder, or one .safetensors or .gguf file. Plain HTTP servers cannot list a folder;
  there, files are found by their usual names
- a range is read from huggingface_hub's cache if any library downloaded the file, then from our own, then remotely
- a file that may change (any URL) is compared with the server once per process; offline, its last known version is used
Tested in tests/checkpoint/remote/test_store.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from inlayer.checkpoint.remote.cache import DiskCache, digest
from inlayer.checkpoint.remote.transfer import (
    CONNECT_TIMEOUT,
    PACKAGES,
    RETRIED,
    FileVersion,
    FsspecRequest,
    RemotePath,
    Span,
    TransferError,
    UnreachableError,
    check_online,
    fetch,
    one_line,
    refused,
    retry,
)
from inlayer.checkpoint.shards import INDEX
from inlayer.errors import CheckpointError, InputError, MissingFileError
from inlayer.files import printable, shown

__all__ = ["HubFolder", "RemoteFile", "RemoteFolder", "UrlFolder", "parse_source"]

HUB_SOURCE = re.compile(r"(?:hf://)?([^/@]+/[^/@]+?)(?:@(.*?))?(?:/([^/]+\.(?:safetensors|gguf)))?/?")
REVISION = re.compile(r"(?!.*\.\.)\w[\w./+-]{0,199}")
COMMIT = re.compile(r"[0-9a-f]{40}")
MISSING = FileVersion(size=-1, etag="")  # the server said that the file does not exist


class RemoteFile:
    """One remote file. Ranges of it are read once and then come from the cache."""

    def __init__(self, path: RemotePath, cache: DiskCache, local: Path | None = None) -> None:
        self.path, self.cache, self.local = path, cache, local
        self._version: FileVersion | None = None

    def __str__(self) -> str:
        return str(self.path)

    @property
    def version(self) -> FileVersion | None:
        """Its size and ETag; None if nothing is known yet. A missing file is an error."""
        if self._version is None:
            known = self.cache.load(digest(self.path.url))
            if known is not None and not self.path.immutable:
                with suppress(UnreachableError):
                    self._request([(0, 1)], {}, attempts=1)
            if known is not None and self._version is None:
                self._version = FileVersion(size=known[0], etag=known[1])
        if self._version == MISSING:
            raise MissingFileError(f"{self} does not exist")
        return self._version

    @property
    def size(self) -> int:
        """Its size in bytes."""
        if self.local is not None:
            return self.local.stat().st_size
        if self.version is None:
            self._request([(0, 1)], {})
        assert self._version is not None
        return self._version.size

    @property
    def key(self) -> str:
        """The key of its ranges in the cache; empty without an ETag, which would reveal a change."""
        version = self.version
        cacheable = version is not None and (version.etag or self.path.immutable)
        return digest(self.path.url, version) if cacheable else ""

    def exists(self) -> bool:
        """Whether the server has it."""
        try:
            return self.size >= 0
        except MissingFileError:
            return False

    def read(self, start: int, stop: int) -> bytes:
        """Bytes start..stop - 1; fewer only if the file ends before."""
        if start >= stop:
            return b""
        found = self.read_cached([(start, stop)]) or self.fetch([(start, stop)])
        self.keep(found)
        return found[start, stop]

    def read_all(self, limit: int) -> bytes:
        """The whole file, unless it is larger than the limit."""
        if self.size > limit:
            raise CheckpointError(f"{self} has {self.size:,} bytes; at most {limit:,} are read")
        return self.read(0, self.size)

    def read_cached(self, spans: Iterable[Span]) -> dict[Span, bytes]:
        """Those of the spans that need no request."""
        return self.cache.get(self.key, spans) if self.local is None and self.key else {}

    def keep(self, ranges: dict[Span, bytes]) -> None:
        """Put ranges into the cache."""
        if self.local is None and self.key:
            self.cache.put(self.key, ranges)

    def fetch(self, spans: Sequence[Span], out: dict[Span, bytes] | None = None) -> dict[Span, bytes]:
        """Read spans without the cache. If one fails, the others are still added to `out`."""
        out = {} if out is None else out
        if self.local is None:
            self.version  # noqa: B018 - may raise an error, or find that the file has changed
            self._request(spans, out)
            return out
        try:
            with self.local.open("rb") as stream:
                for start, stop in spans:
                    stream.seek(start)
                    out[start, stop] = stream.read(stop - start)
        except OSError as error:
            raise CheckpointError(f"{shown(self.local)} cannot be read: {error.strerror}") from error
        return out

    def _request(self, spans: Sequence[Span], out: dict[Span, bytes], attempts: int = 0) -> None:
        before = self._version
        try:
            self._version = fetch(self.path, spans, out, before, attempts)
        except MissingFileError:
            self._version = MISSING
            raise
        finally:
            if self._version is not None and self._version != before:
                self.cache.save(digest(self.path.url), [self._version.size, self._version.etag])


class RemoteFolder:
    """Files behind one prefix. `files` are the names in it; None if the server cannot list them."""

    kind: str
    label: str  # for messages and reports
    example: str  # how to name one file in it
    files: list[str] | None

    def __init__(self, cache: DiskCache) -> None:
        self.cache = cache
        self._opened: dict[str, RemoteFile] = {}

    def open(self, name: str) -> RemoteFile:
        """A file of the folder by its plain name. It keeps its version: a change between two reads is an error."""
        if name not in self._opened:
            self._opened[name] = self._open(name)
        return self._opened[name]

    def _open(self, name: str) -> RemoteFile:
        raise NotImplementedError

    def has(self, name: str) -> bool:
        """Whether the folder has a file of this name."""
        return name in self.files if self.files is not None else self.open(name).exists()


class HubFolder(RemoteFolder):
    """A model repository on the Hugging Face hub, at one commit."""

    kind = "hub"

    def __init__(self, repo_id: str, revision: str | None, cache: DiskCache) -> None:
        super().__init__(cache)
        self.repo_id = repo_id
        self.label = repo_id if revision is None else f"{repo_id}@{revision}"
        self.example = f"hf://{self.label}/"
        self.commit, self.files = self._look_up(revision or "main")

    def _open(self, name: str) -> RemoteFile:
        from huggingface_hub import hf_hub_url, try_to_load_from_cache

        local = try_to_load_from_cache(self.repo_id, name, revision=self.commit)
        url = hf_hub_url(self.repo_id, name, revision=self.commit)
        label = f"{printable(name)} in {self.repo_id}@{self.commit[:8]}"
        path = RemotePath(url=url, label=label, hub=True, immutable=True)
        return RemoteFile(path, self.cache, Path(local) if isinstance(local, str) else None)

    def _look_up(self, revision: str) -> tuple[str, list[str]]:
        """The commit of a revision and its files: from the hub, or as they were the last time."""
        from huggingface_hub import constants

        key = digest("commit", constants.ENDPOINT, self.repo_id, revision)
        known = self.cache.load(key) if COMMIT.fullmatch(revision) else None
        try:
            commit, files = known or self.cache.last_known(
                key, lambda attempts: retry(lambda: self._request(revision), f"cannot look up {self.label}", attempts)
            )
        except UnreachableError:
            snapshot = self._find_snapshot(revision)
            if snapshot is None:
                raise
            commit, files = snapshot
        return commit, files

    def _request(self, revision: str) -> list[Any]:
        from huggingface_hub import HfApi, errors

        check_online(self.label)
        try:
            info = HfApi(library_name="inlayer").model_info(
                self.repo_id, revision=revision, timeout=CONNECT_TIMEOUT, expand=["sha", "siblings"]
            )
            commit, files = info.sha or "", [file.rfilename for file in info.siblings or []]
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if status in RETRIED:
                raise TransferError(f"the hub responded with status {status}") from error
            raise refused(status, error.response.headers, self.label, hub=True) from error
        except (errors.HTTPError, OSError) as error:
            raise TransferError(one_line(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError):
            commit, files = "", []
        if not COMMIT.fullmatch(commit):
            raise CheckpointError(f"{self.label}: the server names no commit; does HF_ENDPOINT point to a hub?")
        return [commit, [file for file in files if "/" not in file]]

    def _find_snapshot(self, revision: str) -> list[Any] | None:
        """The commit that another library downloaded, if its weights can be found without a listing."""
        from huggingface_hub import snapshot_download

        try:
            folder = Path(snapshot_download(self.repo_id, revision=revision, local_files_only=True))
            files = sorted(path.name for path in folder.iterdir())
        except (OSError, ValueError):
            return None
        return [folder.name, files] if {INDEX, "model.safetensors"} & set(files) else None


class UrlFolder(RemoteFolder):
    """A folder behind a URL of any file system that fsspec knows."""

    kind = "url"

    def __init__(self, url: str, cache: DiskCache) -> None:
        super().__init__(cache)
        self.http = url.startswith("http")
        self.base, self.query = url, ""
        if self.http:
            parts = urlsplit(url)
            self.base, self.query = urlunsplit((*parts[:3], "", "")), f"?{parts.query}" if parts.query else ""
        self.base = self.base.rstrip("/") + "/"
        self.label = self.example = re.sub(r"://[^/@]*@", "://", self.base) if self.http else self.base
        self.files = None if self.http else self._list()

    def _open(self, name: str) -> RemoteFile:
        url = self.base + (quote(name) + self.query if self.http else name)
        return RemoteFile(RemotePath(url=url, label=printable(self.label + name)), self.cache)

    def _list(self) -> list[str]:
        request = FsspecRequest(RemotePath(url=self.base, label=self.label), None)

        def attempt() -> list[str]:
            try:
                request.filesystem.invalidate_cache()
                entries = request.filesystem.ls(self.base, detail=True)
            except Exception as error:
                raise request.translate(error) from error
            return sorted(str(entry["name"]).rpartition("/")[2] for entry in entries if entry["type"] == "file")

        key, failed = digest("files", self.base), f"cannot list {self.label}"
        return self.cache.last_known(key, lambda attempts: retry(attempt, failed, attempts))


def parse_source(source: str, cache: DiskCache) -> tuple[RemoteFolder, str | None]:
    """The folder that a hub id or URL names, and the one file in it if it names a file."""
    scheme, separator, rest = source.partition("://")
    if not separator or scheme == "hf":
        repo_id, revision, file = split_hub_source(source)
        return HubFolder(repo_id, revision, cache), file
    if scheme not in PACKAGES:
        allowed = ", ".join(f"{name}://" for name in ("hf", *PACKAGES))
        raise InputError(f"{shown(source)} has the unknown scheme {scheme}://; use {allowed}, or a path")
    if not rest.strip("/") or "::" in source or not source.isprintable() or " " in source:
        raise InputError(f"{shown(source)} is not a valid URL; an example is {scheme}://bucket/folder/")
    path = urlsplit(source).path if scheme.startswith("http") else source
    name = path.rpartition("/")[2]
    if not name.endswith((".safetensors", ".gguf")):
        if "." in name and name.endswith((".bin", ".pt", ".pth", ".json")):
            raise InputError(f"{printable(name)} cannot be read by byte range; download it and open the file")
        return UrlFolder(source, cache), None
    before, _, after = source.rpartition(name)
    return UrlFolder(before + after, cache), name


def split_hub_source(source: str) -> tuple[str, str | None, str | None]:
    """Repository, revision and file of `org/name[@revision]` or `hf://org/name[@revision][/file]`."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    found = HUB_SOURCE.fullmatch(source)
    if found is None:
        raise InputError(f"{shown(source)} is not a hub id; an example is org/name, org/name@main or hf://org/name")
    repo_id, revision, file = found.groups()
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise InputError(f"{shown(repo_id)} is not a hub id: {one_line(str(error))}") from None
    if revision is not None and not REVISION.fullmatch(revision):
        raise InputError(f"{shown(revision)!r} is not a revision; name a branch, a tag or a commit")
    return repo_id, revision, file
