"""Requests to remote servers, and a bounded on-disk cache of the responses.

source -> [remote files] -> Store -> Model
- each response of fsspec's HTTP file system is validated before its body is read: the requested range, the length, no
  compression. HfFileSystem accepts whatever the server sends (measured in docs/decisions.md)
- the hub's token is sent only to the hub, never to a host it redirects to
- the cache is disposable: a damaged range is fetched again, and nothing is stored if the disk is full
Tested with faulty servers in tests/checkpoint/remote/test_transfer.py; the cache is tested in test_cache.py.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import shutil
import socket
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.request import getproxies, proxy_bypass

from inlayer.errors import CheckpointError, InlayerError, MissingExtraError, MissingFileError
from inlayer.files import printable

Result = TypeVar("Result")
Span = tuple[int, int]  # first byte, one past the last byte

ATTEMPTS = 4
INITIAL_BACKOFF = 0.5  # seconds, doubled after each attempt
MAX_BACKOFF = 30.0  # seconds, whatever Retry-After says
CONNECT_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 30.0  # seconds without a byte
MIN_BYTES_PER_SECOND = 4 << 10  # a slower server is considered hung
RETRY_STATUSES = {408, 429, 500, 502, 503, 504}
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")
MAX_CACHED_RANGE_BYTES = 64 << 20
MAX_CACHE_BYTES = 32 << 30
CHECKSUM_BYTES = 4  # bytes before the bytes of the range
PACKAGES = {"https": "aiohttp", "http": "aiohttp", "s3": "s3fs", "gs": "gcsfs"}


class UnreachableError(CheckpointError):
    """The server gave no usable response, or offline mode forbids contacting it."""


class TransferError(Exception):
    """A failed request that is worth retrying, after `wait` seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class FileVersion(NamedTuple):
    """Size and ETag of a file, which change when its content does."""

    size: int
    etag: str


def retry(attempt: Callable[[], Result], error_prefix: str, attempts: int | None = None) -> Result:
    """Call `attempt` until it raises no TransferError, waiting longer each time. An unknown host is not retried."""
    for count in itertools.count(1):
        try:
            return attempt()
        except TransferError as error:
            failure = error
        if count >= (attempts or ATTEMPTS) or is_unknown_host(failure):
            break
        time.sleep(min(max(failure.wait, INITIAL_BACKOFF * 2 ** (count - 1)), MAX_BACKOFF))
    after = f" after {count} attempts" if count > 1 else ""
    raise UnreachableError(f"{error_prefix}{after}: {failure}") from failure.__cause__


def is_unknown_host(error: BaseException | None) -> bool:
    """Return whether an unresolvable host name caused an error."""
    while error is not None and not isinstance(error, socket.gaierror):
        error = error.__cause__ or error.__context__
    return error is not None


def convert_error(error: Exception, label: str) -> Exception:
    """Return the error to raise instead of the library's."""
    if isinstance(error, (InlayerError, TransferError)):
        return error
    if isinstance(error, FileNotFoundError):
        return MissingFileError(f"{label} does not exist")
    if isinstance(error, PermissionError):
        return CheckpointError(f"{label} cannot be read: {one_line_error(error)}; check your credentials")
    translated = TransferError(_not_connected(error) or one_line_error(error))
    translated.__cause__ = error
    return translated


def _not_connected(error: Exception) -> str:
    """Describe a failed connection, without the connection settings in aiohttp's own message."""
    cause = getattr(error, "os_error", None)
    refused = isinstance(cause, ConnectionRefusedError) or "Connect call failed" in str(cause)
    if type(error).__name__ != "ClientConnectorError" or not refused:  # proxies, unknown hosts, TLS
        return ""
    return f"cannot connect to {getattr(error, 'host', '')}:{getattr(error, 'port', '')}"


def one_line_error(error: object) -> str:
    """Return untrusted text or an exception, shortened, on one line."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return printable(text)[:160].removesuffix(": ")


async def get_range(
    session: Any, url: Any, span: Span, label: str, *, hub: bool, accept: Callable[[FileVersion], object]
) -> bytes:
    """Read a range over HTTP. The body is only read if the headers are right and `accept` raises no error."""
    from aiohttp import ClientTimeout

    start, stop = span
    headers = {"Range": f"bytes={start}-{stop - 1}", "Accept-Encoding": "identity"}
    if hub:
        from huggingface_hub.utils import build_hf_headers

        headers |= build_hf_headers(library_name="inlayer")
    total = READ_TIMEOUT + (stop - start) / MIN_BYTES_PER_SECOND
    timeout = ClientTimeout(total=total, sock_connect=CONNECT_TIMEOUT, sock_read=READ_TIMEOUT)
    proxy = None if proxy_bypass(url.host or "") else getproxies().get(url.scheme)
    async with session.get(url, headers=headers, timeout=timeout, proxy=proxy) as response:
        try:
            if url.scheme == "https" != response.url.scheme:
                raise CheckpointError(f"{label} redirects to an unencrypted address; the redirect was not followed")
            if response.status >= 400 and response.status != 416:
                raise status_error(response.status, response.headers, label, hub=hub)
            size = file_size(response, start, stop, label)
            # The hub sends an ETag with its redirects, and its CDNs may send different ones.
            linked = [hop.headers["X-Linked-ETag"] for hop in response.history if "X-Linked-ETag" in hop.headers]
            etag = (*linked, response.headers.get("ETag") or response.headers.get("Last-Modified", ""))[0]
            accept(FileVersion(size, one_line_error(etag.removeprefix("W/").strip('"'))))
        except Exception:
            response.close()
            raise
        return bytes(await response.read())


def file_size(response: Any, start: int, stop: int, label: str) -> int:
    """Return the size of the whole file, from a response that has the requested range."""
    headers, length = response.headers, response.headers.get("Content-Length", "None")
    match = CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
    if headers.get("Content-Encoding", "identity") != "identity":
        raise TransferError("the server compressed a byte range")
    if response.status == 416:
        raise truncated_error(label, start)
    if response.status == 200:  # it ignored the range, which is fine for a whole file
        if start == 0 and length.isdecimal() and 0 < int(length[:18]) <= stop:
            return int(length[:18])
        raise TransferError("the server ignores byte ranges and sends the whole file")
    if match is None or response.status != 206:
        raise TransferError("the response has no valid Content-Range")
    first, last, size = map(int, match.groups())
    if (first, last) != (start, min(stop, size) - 1):
        raise TransferError(f"the server sent bytes {first:,}..{last:,} of {size:,} instead of {start:,}..{stop - 1:,}")
    if length != str(last + 1 - first):
        raise TransferError(f"the response has Content-Length {one_line_error(length)} instead of {last + 1 - first}")
    return size


def truncated_error(label: object, byte: int) -> CheckpointError:
    """Return the error for a file that ends before a byte."""
    return CheckpointError(f"{label} ends before byte {byte:,}; was it truncated when it was uploaded?")


def status_error(status: int, headers: Mapping[str, str], label: str, *, hub: bool) -> Exception:
    """Return the error for a status of 400 or more."""
    if status in RETRY_STATUSES:
        wait = headers.get("Retry-After", "")  # a date, the other form of this header, is ignored
        return TransferError(f"the server responded with status {status}", float(wait[:6] if wait.isdecimal() else 0))
    code, login = headers.get("X-Error-Code", "") if hub else "", "log in with `hf auth login` or set HF_TOKEN"
    if code == "GatedRepo":
        return CheckpointError(f"{label} is gated: request access on its page, then {login}")
    if code == "RevisionNotFound":
        return MissingFileError(f"{label} does not exist: the repository has no such revision")
    if code == "RepoNotFound" or (hub and status == 401):
        return MissingFileError(f"{label} does not exist: the hub has no such repository, or it is private ({login})")
    if status in {404, 410}:
        return MissingFileError(f"{label} does not exist")
    if not hub and status in {401, 403}:  # object stores do not reveal whether a file exists
        return MissingFileError(f"{label} does not exist or is not public: the server responded with status {status}")
    return CheckpointError(f"{label} cannot be read: the server responded with status {status}")


def check_online(label: str) -> None:
    """Raise an error if HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        raise UnreachableError(f"{label} is not in the local cache, and HF_HUB_OFFLINE is set; unset it to download")


@lru_cache(maxsize=16)
def open_filesystem(protocol: str, _pid: int) -> Any:
    """Open an fsspec file system, shared by all threads but not across forks, which its event loop does not survive."""
    try:
        import fsspec

        if protocol not in {"http", "https"}:
            return fsspec.filesystem(protocol, skip_instance_cache=True)
        from fsspec.implementations.http import HTTPFileSystem
    except ImportError as error:
        package = PACKAGES.get(protocol, "")
        install = "pip install 'inlayer[hub]'" + ("" if package == "aiohttp" else f" {package}")
        raise MissingExtraError(f"{protocol}:// sources need fsspec and {package}: {install}") from error

    class CheckedHttp(HTTPFileSystem):  # type: ignore[misc]
        async def _cat_file(self, url: str, start: int, end: int, **request: Any) -> bytes:
            return await get_range(await self.set_session(), self.encode_url(url), (start, end), **request)

    # Not aiohttp's trust_env, which also adds credentials from ~/.netrc and then refuses the hub's token.
    return CheckedHttp(skip_instance_cache=True, encoded=True)


def open_cache() -> DiskCache:
    """Return this user's cache, in huggingface_hub's folder for other libraries."""
    from huggingface_hub import constants

    return DiskCache(Path(constants.HF_ASSETS_CACHE, "inlayer", "remote", "v3"))


def digest(*parts: object) -> str:
    """Hash any values, which may be secret, into a cache key."""
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:40]


class DiskCache:
    """Ranges, values, and files in a folder. Nothing is stored if the folder cannot be written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._free_bytes = folder, 0  # bytes that can be written before the cache is scanned again

    def get(self, key: str, spans: Iterable[Span]) -> dict[Span, bytes]:
        """Return the spans that are cached and intact."""
        cached: dict[Span, bytes] = {}
        for start, stop in spans:
            with suppress(OSError):
                data = (self.folder / key / f"{start}-{stop}").read_bytes()
                if checksum(data[CHECKSUM_BYTES:]) == data[:CHECKSUM_BYTES]:
                    cached[start, stop] = data[CHECKSUM_BYTES:]
        return cached

    def put(self, key: str, ranges: Mapping[Span, bytes]) -> None:
        """Keep these ranges, except very large ones."""
        small = {span: data for span, data in ranges.items() if len(data) <= MAX_CACHED_RANGE_BYTES}
        folder = self.make_folder(key, sum(CHECKSUM_BYTES + len(data) for data in small.values()), keep=False)
        if folder is None:
            return
        for (start, stop), data in small.items():
            temporary = folder / f".{secrets.token_hex(8)}"
            with suppress(OSError):
                temporary.write_bytes(checksum(data) + data)
                temporary.replace(folder / f"{start}-{stop}")
            temporary.unlink(missing_ok=True)

    def load(self, key: str) -> Any:
        """Return a saved JSON value, or None."""
        cached = self.get(key, [(0, 0)])
        return json.loads(cached[0, 0]) if cached else None

    def save(self, key: str, value: object) -> None:
        """Keep a JSON value."""
        self.put(key, {(0, 0): json.dumps(value).encode()})

    def last_known(self, key: str, request: Callable[[], Result], error_prefix: str) -> Result:
        """Return the result of `request` or, if the server cannot be reached, its last known result."""
        known: Result | None = self.load(key)
        try:
            result = retry(request, error_prefix, attempts=None if known is None else 1)
        except UnreachableError:
            if known is None:
                raise
            return known
        if result != known:
            self.save(key, result)
        return result

    def make_folder(self, key: str, nbytes: int, *, keep: bool = True) -> Path | None:
        """Return the folder of a key, marked as used, with room for `nbytes`; None if it cannot be written.

        If the folder alone is too large, it is emptied, unless `keep` is set.
        """
        folder = self.folder / key
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.utime(folder)
            self._free_bytes -= nbytes
            if self._free_bytes < 0:
                self._trim(folder if keep else None, nbytes)
                folder.mkdir(exist_ok=True)
        except OSError:
            return None
        return folder

    def _trim(self, kept: Path | None, nbytes: int) -> None:
        """Delete the least recently used folders, except one, to make room for `nbytes` and the next few files."""
        total = room = max(nbytes, MAX_CACHE_BYTES // 64)
        with suppress(OSError):  # another process may delete them at the same time
            for other in sorted(self.folder.iterdir(), key=lambda path: -path.stat().st_mtime):
                with suppress(NotADirectoryError):  # the file is not ours
                    total += sum(file.stat().st_size for file in other.iterdir())
                if total > MAX_CACHE_BYTES and other != kept:
                    shutil.rmtree(other, ignore_errors=True)
        self._free_bytes = room - nbytes


def checksum(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")
