"""Byte ranges of remote files: read through fsspec, validated, retried.

[checkpoint] -> Embeddings, Head, tokenizer
- hub files and http(s) URLs go through fsspec's HTTPFileSystem. Each response is validated before its body is read: the
  requested range, the expected size and ETag, no compression. A server that ignores ranges costs one set of headers
- HfFileSystem is not used: it reads and accepts whatever the server sends (docs/decisions.md has the measurement)
- other file systems (s3://, gs://) report size and version in `info`, which is compared before and after each read
- ranges are requested concurrently; only those that failed are requested again
- the hub's token is sent to the hub alone, never along a redirect to another host
- elsewhere: the cache on disk (cache.py), the files of a checkpoint (source.py)
Tested with faulty servers in tests/checkpoint/remote/test_transfer.py.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from inlayer.errors import CheckpointError, InlayerError, MissingExtraError, MissingFileError
from inlayer.files import printable

__all__ = [
    "RETRIED", "FileVersion", "FsspecRequest", "RemotePath", "Span", "TransferError", "UnreachableError",
    "check_online", "fetch", "one_line", "refused", "retry",
]  # fmt: skip

Result = TypeVar("Result")
Span = tuple[int, int]  # first byte, one past the last byte

ATTEMPTS = 4
FIRST_WAIT = 0.5  # seconds, doubled after each attempt
MAX_WAIT = 30.0  # seconds, whatever Retry-After says
CONNECT_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 30.0  # seconds without a byte
MIN_SPEED = 4 << 10  # bytes per second; a slower server counts as hanging
CONCURRENT = 8  # requests
RETRIED = {408, 429, 500, 502, 503, 504}
RANGE = re.compile(r"bytes=(\d+)-(\d+)")
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
VERSION_FIELDS = ("ETag", "etag", "generation", "LastModified", "updated", "mtime", "created")  # in fsspec's info
PACKAGES = {"https": "aiohttp", "http": "aiohttp", "s3": "s3fs", "gs": "gcsfs"}


class UnreachableError(CheckpointError):
    """A server that gave no usable response, or that offline mode excludes."""


class TransferError(Exception):
    """A failed request that is worth repeating."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class RemotePath:
    """A file that fsspec opens by its URL."""

    url: str
    label: str  # for messages: without query string and credentials, which may be secret
    hub: bool = False  # send the hub's token and respect HF_HUB_OFFLINE
    immutable: bool = False  # part of a commit: the content behind the URL never changes

    def __str__(self) -> str:
        return self.label


@dataclass(frozen=True, kw_only=True)
class FileVersion:
    """Size and ETag of a file. They change when its content does."""

    size: int
    etag: str


def fetch(
    path: RemotePath, spans: Sequence[Span], out: dict[Span, bytes], version: FileVersion | None, attempts: int = 0
) -> FileVersion:
    """Read byte ranges into `out`, where each remains even if another one fails.

    A range ends early only where the file ends. `version` is the one the file must still have; None accepts any.
    Returns the version that was read.
    """
    request = (HttpRequest if path.url.startswith("http") else FsspecRequest)(path, version)

    def attempt() -> FileVersion:
        failures: list[Exception] = []
        missing = [span for span in spans if span not in out]
        for (start, stop), data in zip(missing, request.send(missing), strict=True):
            if not isinstance(data, bytes):
                failures.append(request.translate(data))
            elif request.version is None or len(data) != min(stop, request.version.size) - start:
                failures.append(TransferError(f"the server sent {len(data):,} bytes of {stop - start:,}"))
            else:
                out[start, stop] = data
        for failure in sorted(failures, key=lambda failure: isinstance(failure, TransferError)):
            raise failure  # an error that no retry can fix, if there is one
        assert request.version is not None
        return request.version

    first, last = min(spans)[0], max(stop for _, stop in spans) - 1
    return retry(attempt, f"cannot read bytes {first:,}..{last:,} of {path}", attempts)


def retry(attempt: Callable[[], Result], failed: str, attempts: int = 0) -> Result:
    """Call `attempt` until it raises no TransferError, waiting longer each time."""
    for count in itertools.count(1):
        try:
            return attempt()
        except TransferError as error:
            failure = error
        if count >= (attempts or ATTEMPTS):
            break
        time.sleep(min(max(failure.wait, FIRST_WAIT * 2 ** (count - 1)), MAX_WAIT))
    raise UnreachableError(f"{failed} (attempts: {count}): {failure}") from failure.__cause__


class FsspecRequest:
    """Reads ranges of one file and remembers its version; for any file system of fsspec."""

    def __init__(self, path: RemotePath, version: FileVersion | None) -> None:
        self.path, self.version = path, version
        self.filesystem = open_filesystem(path.url.partition("://")[0])

    def send(self, spans: Sequence[Span]) -> list[Any]:
        """The bytes of each span, or the exception that it caused."""
        try:
            self.accept(self._info())
            assert self.version is not None
            stops = [min(stop, self.version.size) for _, stop in spans]
            for (start, _), stop in zip(spans, stops, strict=True):
                if start >= stop:
                    raise self.ends_before(start)
            starts, paths = [start for start, _ in spans], [self.path.url] * len(spans)
            results = list(self.filesystem.cat_ranges(paths, starts, stops, on_error="return"))
            self.accept(self._info())
        except Exception as error:
            return [error] * len(spans)
        return results

    def _info(self) -> FileVersion:
        self.filesystem.invalidate_cache(self.path.url)
        info = self.filesystem.info(self.path.url)
        if info.get("type") != "file":
            raise FileNotFoundError(self.path.url)
        etag = next((str(info[field]) for field in VERSION_FIELDS if info.get(field)), "")
        return FileVersion(size=int(info["size"]), etag=one_line(etag.strip('"')))

    def accept(self, version: FileVersion) -> None:
        """Raise an error unless this is the version read before."""
        if self.version is None:
            self.version = version
        elif version != self.version:
            raise CheckpointError(
                f"{self.path} changed on the server while it was being read, from {self.version.size:,} bytes with "
                f"ETag {self.version.etag!r} to {version.size:,} with {version.etag!r}; open it again"
            )

    def ends_before(self, start: int) -> CheckpointError:
        """The error for a range past the end of the file."""
        return CheckpointError(f"{self.path} ends before byte {start:,}; was it truncated when it was uploaded?")

    def translate(self, error: Exception) -> Exception:
        """The error to report in place of a library's own."""
        if isinstance(error, (InlayerError, TransferError)):
            return error
        if isinstance(error, FileNotFoundError):
            return MissingFileError(f"{self.path} does not exist")
        if isinstance(error, PermissionError):
            return CheckpointError(f"{self.path} cannot be read: {one_line(error)}; check your credentials")
        translated = TransferError(one_line(error))
        translated.__cause__ = error
        return translated


class HttpRequest(FsspecRequest):
    """Reads ranges over HTTP. The version comes with each response."""

    linked: str | None = None  # the ETag that the hub sent along with its redirects

    def send(self, spans: Sequence[Span]) -> list[Any]:
        from aiohttp import ClientTimeout
        from fsspec.asyn import sync

        headers = {"Accept-Encoding": "identity"}  # a range of a compressed body would be another range
        if self.path.hub:
            from huggingface_hub.utils import build_hf_headers

            check_online(str(self.path))
            headers |= build_hf_headers(library_name="inlayer")
        longest = READ_TIMEOUT + max(stop - start for start, stop in spans) / MIN_SPEED
        timeout = ClientTimeout(total=longest, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
        read = partial(
            self.filesystem._cat_ranges, batch_size=CONCURRENT,
            headers=headers, timeout=timeout, raise_for_status=self._validate, trace_request_ctx=self,
            proxy=find_proxy(self.path.url),
        )  # fmt: skip
        paths, (starts, stops) = [self.path.url] * len(spans), zip(*spans, strict=True)
        return list(sync(self.filesystem.loop, read, paths, starts, stops))  # cat_ranges() has no use for a timeout

    async def _validate(self, response: Any) -> None:
        """Called by aiohttp when the headers are there and the body is not."""
        try:
            self._check_response(response)
        except Exception:
            response.close()
            raise

    def _check_response(self, response: Any) -> None:
        status, headers = response.status, response.headers
        requested = RANGE.fullmatch(response.request_info.headers.get("Range", ""))
        assert requested is not None
        start, stop = int(requested[1]), int(requested[2]) + 1
        if status in RETRIED:
            raise TransferError(f"the server responded with status {status}", retry_after(headers))
        if status == 416:
            raise self.ends_before(start)
        if status >= 400:
            raise refused(status, headers, str(self.path), hub=self.path.hub)
        if self.path.url.startswith("https:") and response.url.scheme != "https":
            raise CheckpointError(f"{self.path} is redirected to an address without encryption, which is not followed")
        if headers.get("Content-Encoding", "identity") != "identity":
            raise TransferError("the server compressed a byte range")
        size = file_size(status, headers, start, stop)
        if headers.get("Content-Length") != str(min(stop, size) - start):
            length = one_line(headers.get("Content-Length"))
            raise TransferError(f"the response has Content-Length {length} instead of {min(stop, size) - start}")
        etag = self.linked or headers.get("ETag") or headers.get("Last-Modified", "")
        self.accept(FileVersion(size=size, etag=one_line(etag.removeprefix("W/").strip('"'))))


def file_size(status: int, headers: Mapping[str, str], start: int, stop: int) -> int:
    """The size of the whole file, from a response that has the requested range."""
    if status == 200:  # no range, which is just as good if the whole file was requested
        length = headers.get("Content-Length", "")
        if start == 0 and length.isdecimal() and 0 < int(length[:18]) <= stop:
            return int(length[:18])
        raise TransferError("the server ignores byte ranges and sends the whole file")
    if status != 206:
        raise TransferError(f"the server responded with status {status}")
    found = CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if found is None:
        raise TransferError("the response has no valid Content-Range")
    first, last, size = map(int, found.groups())
    if (first, last) != (start, min(stop, size) - 1):
        raise TransferError(f"the server sent bytes {first:,}..{last:,} of {size:,} instead of {start:,}..{stop - 1:,}")
    return size


async def _on_redirect(_session: Any, context: Any, redirect: Any) -> None:
    """Called by aiohttp: remember the ETag of the hub, since those of its CDNs may differ."""
    request, linked = context.trace_request_ctx, redirect.response.headers.get("X-Linked-ETag")
    if linked is not None and linked != (request.linked or linked):
        raise CheckpointError(f"{request.path} changed on the server while it was being read; open it again")
    request.linked = linked or request.linked


def find_proxy(url: str) -> str | None:
    """The proxy that the environment (HTTPS_PROXY, NO_PROXY) sets for a URL."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait. Its other form, a date, is ignored."""
    value = headers.get("Retry-After", "")
    return float(value[:6]) if value.isdecimal() else 0.0


def refused(status: int, headers: Mapping[str, str], what: str, *, hub: bool) -> InlayerError:
    """The error for a status that will be the same next time."""
    code = headers.get("X-Error-Code", "") if hub else ""
    if code == "GatedRepo":
        return CheckpointError(
            f"{what} is gated: request access on its page, then log in with `hf auth login` or set HF_TOKEN"
        )
    if code == "RevisionNotFound":
        return MissingFileError(f"{what} does not exist: the repository has no such revision")
    if code == "RepoNotFound" or (hub and status == 401):
        return MissingFileError(
            f"{what} does not exist: the hub has no such repository, or it is private (log in with `hf auth login` or "
            "set HF_TOKEN)"
        )
    if status in {404, 410}:
        return MissingFileError(f"{what} does not exist")
    if not hub and status in {401, 403}:  # object stores hide what does not exist
        return MissingFileError(f"{what} does not exist or is not public: the server responded with status {status}")
    return CheckpointError(f"{what} cannot be read: the server responded with status {status}")


def check_online(what: str) -> None:
    """Raise an error if HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UnreachableError(f"{what} is not in the local cache, and HF_HUB_OFFLINE is set; unset it to download")


def open_filesystem(protocol: str) -> Any:
    """The fsspec file system for a protocol, shared by the threads of this process."""
    try:
        return _open_filesystem(protocol, os.getpid())
    except ImportError as error:
        package = PACKAGES.get(protocol, "")
        raise MissingExtraError(
            f"{protocol}:// sources need fsspec and {package}, which are not installed: pip install 'inlayer[hub]'"
            + (f" {package}" if package != "aiohttp" else "")
        ) from error


@lru_cache(maxsize=16)
def _open_filesystem(protocol: str, _pid: int) -> Any:
    """One instance per process: fsspec's event loop does not survive a fork."""
    import fsspec

    if protocol not in {"http", "https"}:
        return fsspec.filesystem(protocol, skip_instance_cache=True)

    from aiohttp import TraceConfig

    trace = TraceConfig()
    trace.on_request_redirect.append(_on_redirect)
    # Not aiohttp's trust_env, which also adds credentials from ~/.netrc and then refuses the hub's token.
    return fsspec.filesystem(protocol, skip_instance_cache=True, encoded=True, client_kwargs={"trace_configs": [trace]})


def one_line(error: object) -> str:
    """An untrusted text or an exception, short and on one line."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return printable(text)[:160].removesuffix(": ")
