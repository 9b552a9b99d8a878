"""One byte range of a file on the hub: asked for, checked, asked for again where the connection failed.

[checkpoint] -> Embeddings, Head, tokenizer
- an answer counts when it is the range that was asked for, of a file as long as it was before and with the same ETag,
  and all of its bytes came. Everything else is a fault: tried again from the first byte that is missing, a few times
- a server that ignores ranges is found out by its status line: the gigabytes it starts to send are not read
- requests go through huggingface_hub's own session: its endpoint, token, proxies and offline mode count here too. The
  token does not follow a redirect to another host
- not here: keeping what was fetched (checkpoint/remote/ranges.py), whole small files (checkpoint/remote/)
Checked against a server with every one of these faults in tests/checkpoint/remote/test_transfer.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from inlayer.errors import CheckpointError, InlayerError, MissingExtraError, MissingFileError
from inlayer.paths import printable

__all__ = [
    "RETRIED",
    "AbsentError",
    "Facts",
    "Fault",
    "Place",
    "UnreachableError",
    "explain",
    "explain_offline",
    "fetch",
    "hub_errors",
    "one_line",
    "persist",
    "refusal",
    "require_hub",
    "retry_after",
]

Answer = TypeVar("Answer")

ATTEMPTS = 4  # in a row that bring little or nothing
FIRST_WAIT = 0.5  # seconds, doubled at every attempt
LONGEST_WAIT = 30.0  # seconds, whatever Retry-After says
CONNECT_TIMEOUT = 10.0  # seconds
READ_TIMEOUT = 30.0  # seconds without a byte
SLOWEST = 4 << 10  # bytes a second: a server that drips is one that hangs
PROGRESS = 1 << 20  # bytes that make an attempt count as a success, though the connection broke after them
RETRIED = {408, 429, 500, 502, 503, 504}
CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class AbsentError(MissingFileError):
    """A file that the repository, which is there, does not have."""


class UnreachableError(CheckpointError):
    """A hub that gave no usable answer, or may not be asked."""


class Fault(Exception):  # noqa: N818 - no error of its own: persist() makes one of it
    """An answer that may be better the next time."""

    def __init__(self, cause: str, wait: float = 0.0) -> None:
        super().__init__(cause)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Place:
    """A file of one commit of a repository."""

    repo_id: str
    commit: str
    file: str

    def __str__(self) -> str:
        return f"{self.file} of {self.repo_id}@{self.commit[:8]}"


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What stays the same about a file from one request to the next."""

    size: int
    etag: str


def require_hub() -> None:
    """An error with the install line where huggingface_hub is not installed."""
    try:
        import huggingface_hub  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "a model on the hub is opened with huggingface_hub, which is not installed: pip install 'inlayer[hub]'"
        ) from error


def hub_errors() -> tuple[type[Exception], ...]:
    """What huggingface_hub raises when a request or a file fails."""
    from huggingface_hub import errors

    return errors.HTTPError, OSError  # the base it took from its HTTP library: httpx in 1.x, httpx2 in 2.x


def fetch(place: Place, start: int, stop: int, known: Facts | None = None) -> tuple[bytes, Facts]:
    """Bytes start..stop - 1 of a file, fewer only where it ends before; and its facts, the `known` ones if any."""
    transfer = Transfer(place, start, stop, known)
    what = f"bytes {start:,}..{stop - 1:,} of {place} could not be fetched"
    facts = persist(transfer.run, what, progress=lambda: transfer.at)
    return bytes(transfer.data), facts


def persist(
    attempt: Callable[[], Answer], failed: str, attempts: int | None = None, progress: Callable[[], int] = lambda: 0
) -> Answer:
    """What the attempt gives, tried again after a fault; `progress` counts the bytes that came nevertheless."""
    failures, most = 0, attempts or ATTEMPTS
    while True:
        before = progress()
        try:
            return attempt()
        except Fault as fault:
            failures = 1 if progress() - before >= PROGRESS else failures + 1
            if failures >= most:
                raise UnreachableError(f"{failed}, {most} times tried: {fault}") from fault.__cause__
            time.sleep(min(max(fault.wait, FIRST_WAIT * 2 ** (failures - 1)), LONGEST_WAIT))


class Transfer:
    """A range on its way: what came so far, and what is asked for next."""

    def __init__(self, place: Place, start: int, stop: int, known: Facts | None) -> None:
        self.place, self.start, self.stop, self.known = place, start, stop, known
        self.data = bytearray()

    @property
    def at(self) -> int:
        """The first byte that is missing."""
        return self.start + len(self.data)

    def run(self) -> Facts:
        """One request for all that is missing."""
        from huggingface_hub import errors, get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        url = hf_hub_url(self.place.repo_id, self.place.file, revision=self.place.commit)
        headers = build_hf_headers(library_name="inlayer") | {
            "Range": f"bytes={self.at}-{self.stop - 1}",
            "Accept-Encoding": "identity",  # a range of a compressed body would be a range of something else
        }
        timeout = (CONNECT_TIMEOUT, READ_TIMEOUT, READ_TIMEOUT, CONNECT_TIMEOUT)  # connect, read, write, pool
        try:
            with get_session().stream("GET", url, headers=headers, timeout=timeout, follow_redirects=True) as response:
                self.known = self._check(response)
                self._receive(response)
        except InlayerError:
            raise  # some of them are OSErrors too
        except errors.OfflineModeIsEnabled:
            raise explain_offline(str(self.place)) from None
        except hub_errors() as error:
            raise Fault(one_line(error)) from error
        return self.known

    def _check(self, response: Any) -> Facts:
        """The facts of the file, if the answer is the one that was asked for; nothing of its body is read for that."""
        status, headers = response.status_code, response.headers
        if status in RETRIED:
            raise Fault(f"the server answered with status {status}", retry_after(headers))
        if status == 416:
            raise CheckpointError(f"{self.place} ends before byte {self.at:,}; was it cut short when it was uploaded?")
        if status >= 400:
            raise refusal(status, headers, str(self.place))
        if headers.get("Content-Encoding", "identity") != "identity":
            raise Fault("the server compressed a range")
        size = self._size(status, headers)
        if headers.get("Content-Length") != str(min(self.stop, size) - self.at):
            raise Fault(f"the server announced {one_line(headers.get('Content-Length'))} bytes for this range")
        facts = Facts(size=size, etag=etag_of([*response.history, response]))
        if self.known is not None and facts != self.known:
            raise CheckpointError(
                f"{self.place} changed on the server while it was read: {self.known.size:,} bytes with ETag "
                f"{self.known.etag}, now {facts.size:,} with {facts.etag}"
            )
        return facts

    def _size(self, status: int, headers: Mapping[str, str]) -> int:
        """How long the whole file is, by an answer whose range is right."""
        if status == 200:  # no range, which is as good where the whole file was asked for
            length = headers.get("Content-Length", "")
            if self.at == 0 and length.isdecimal() and 0 < int(length[:18]) <= self.stop:
                return int(length[:18])
            raise Fault("the server ignores byte ranges and sends the whole file")
        if status != 206:
            raise Fault(f"the server answered with status {status}")
        found = CONTENT_RANGE.fullmatch(headers.get("Content-Range", ""))
        if found is None:
            raise Fault("the server did not say which range it sends")
        first, last, size = map(int, found.groups())
        if first != self.at or last != min(self.stop, size) - 1:
            raise Fault(f"the server sent bytes {first:,}..{last:,} of {size:,} when asked for {self.at:,} and on")
        return size

    def _receive(self, response: Any) -> None:
        assert self.known is not None
        self.stop = min(self.stop, self.known.size)
        missing = self.stop - self.at
        latest = time.monotonic() + READ_TIMEOUT + missing / SLOWEST
        for chunk in response.iter_raw():
            self.data += chunk[: self.stop - self.at]
            if time.monotonic() > latest:
                raise Fault("the server sends too slowly")
        if self.at < self.stop:
            raise Fault(f"the connection ended {self.stop - self.at:,} bytes early")


def etag_of(answers: list[Any]) -> str:
    """The file's mark of identity: the hub's own if it gave one before it redirected, else the last server's."""
    linked = (answer.headers.get("X-Linked-ETag") for answer in answers)
    etag = next((value for value in linked if value), answers[-1].headers.get("ETag", ""))
    return printable(etag.removeprefix("W/").strip('"'))[:200]


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds the server asks to wait; a date, its other spelling, is left to our own waiting."""
    value = headers.get("Retry-After", "")
    return float(value[:6]) if value.isdecimal() else 0.0


def refusal(status: int, headers: Mapping[str, str], what: str) -> InlayerError:
    """The error for an answer that will be the same the next time."""
    code = headers.get("X-Error-Code", "")
    if code == "GatedRepo":
        return CheckpointError(
            f"{what} is behind a gate: ask for access on its page, then log in (`hf auth login`, or HF_TOKEN)"
        )
    if code == "RevisionNotFound":
        return MissingFileError(f"{what} is not there: the repository has no such revision")
    if code == "RepoNotFound" or status == 401:
        return MissingFileError(
            f"{what} is not there: no such repository on the hub, or a private one (log in with `hf auth login`, or "
            "set HF_TOKEN)"
        )
    if code == "EntryNotFound" or status == 404:
        return AbsentError(f"{what} is not there: the repository has no such file")
    return CheckpointError(f"{what} is refused by the hub with status {status}; has the token the right to read it?")


def explain(error: BaseException, what: str) -> InlayerError:
    """The error to show in place of one of huggingface_hub's."""
    from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

    if isinstance(error, LocalEntryNotFoundError) and error.__cause__ is not None:
        return explain(error.__cause__, what)
    if isinstance(error, OfflineModeIsEnabled):
        return explain_offline(what)
    response = getattr(error, "response", None)
    if response is not None and response.status_code not in RETRIED:
        return refusal(response.status_code, response.headers, what)
    cause = one_line(error) if response is None else f"it answered with status {response.status_code}"
    return UnreachableError(f"{what} is not in the local cache, and the hub cannot be asked: {cause}")


def explain_offline(what: str) -> UnreachableError:
    """The error for what the cache lacks while HF_HUB_OFFLINE is set."""
    return UnreachableError(
        f"{what} is needed and not in the local cache, and HF_HUB_OFFLINE forbids to fetch it; unset it once"
    )


def one_line(error: object) -> str:
    """A stranger's words, short and on one line; an error with its kind, since many of them say nothing else."""
    text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    return printable(text)[:160].removesuffix(": ")
