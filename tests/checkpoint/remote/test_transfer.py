"""Byte ranges: the right bytes or a clear error, whatever the server does."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from inlayer.checkpoint.remote import UnreachableError, open_remote, transfer
from inlayer.checkpoint.remote.source import RemoteFile
from inlayer.checkpoint.remote.transfer import DiskCache
from inlayer.errors import CheckpointError, InlayerError, MissingExtraError, MissingFileError
from tests.checkpoint.remote.server import Hub

CONTENT = bytes(range(256)) * 1000
FILE = "weights.safetensors"  # redirected to the other origin
SMALL = "index.json"  # not redirected


@pytest.fixture
def folder(hub: Hub, tmp_path: Path) -> Path:
    folder = tmp_path / "repo"
    folder.mkdir()
    for name in (FILE, SMALL):
        (folder / name).write_bytes(CONTENT)
    hub.add("org/name", folder)
    return folder


def path_of(
    hub: Hub, file: str = FILE, repo: str = "org/name", revision: str = "main", on_hub: bool = True
) -> RemoteFile:
    url = f"{hub.endpoint}/{repo}/resolve/{revision}/{file}"
    return RemoteFile(url, f"{file} in {repo}", DiskCache(Path(os.devnull, "none")), hub=on_hub)


def read(file: RemoteFile, start: int, stop: int) -> bytes:
    return file.fetch([(start, stop)])[start, stop]


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (5, 300), (255_000, 256_000), (255_999, 256_000), (0, 256_000)])
@pytest.mark.parametrize("file", [FILE, SMALL])
def test_range_equals_the_bytes_of_the_file(hub: Hub, folder: Path, file: str, start: int, stop: int) -> None:
    opened = path_of(hub, file)
    out = opened.fetch([(start, stop)])
    assert out == {(start, stop): CONTENT[start:stop]}
    assert out[start, stop] != CONTENT[start + 1 : stop + 1]  # control: neighboring ranges differ
    assert opened.size == len(CONTENT)
    version = opened.check_version()
    assert version is not None
    assert version.etag


def test_range_past_the_end_is_shorter_or_an_error(hub: Hub, folder: Path) -> None:
    assert read(path_of(hub), 255_000, 300_000) == CONTENT[255_000:]
    with pytest.raises(CheckpointError, match=r"weights.safetensors in org/name ends before byte 256,000"):
        read(path_of(hub), 256_000, 256_001)


TRANSIENT = {
    "ignore_range": "ignores byte ranges",
    "cut_connection": "ClientPayloadError|ContentLengthError",
    "short_length": "Content-Length 999 instead of 1000",
    "long_length": "Content-Length 1001 instead of 1000",
    "no_length": "Content-Length None instead of 1000",
    "shift_range": r"sent bytes 501..1,500 of 256,000 instead of 500..1,499",
    "wrong_start": r"sent bytes 501..1,499 of 256,000 instead of 500..1,499",
    "short_range": r"sent bytes 500..1,498",
    "no_content_range": "no valid Content-Range",
    "gzip": "compressed",
    "status": "status 500",
}


@pytest.mark.parametrize("kind", TRANSIENT)
@pytest.mark.parametrize("file", [FILE, SMALL])
def test_transient_fault_is_retried(hub: Hub, folder: Path, kind: str, file: str) -> None:
    hub.fail(kind, file, times=transfer.ATTEMPTS - 1, after=100)
    assert read(path_of(hub, file), 500, 1500) == CONTENT[500:1500]
    assert len(hub.ranges(file)) == transfer.ATTEMPTS


@pytest.mark.parametrize("kind", TRANSIENT)
def test_permanent_fault_is_a_one_line_error(hub: Hub, folder: Path, kind: str) -> None:
    hub.fail(kind, FILE, after=0)
    with pytest.raises(UnreachableError, match=TRANSIENT[kind]) as caught:
        read(path_of(hub), 500, 1500)
    message = str(caught.value)
    assert message.startswith("cannot read weights.safetensors in org/name after 4 attempts: ")
    assert "\n" not in message
    assert "http://" not in message  # a URL may contain a signature
    assert len(hub.ranges(FILE)) == transfer.ATTEMPTS


def test_only_failed_ranges_are_requested_again(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = [(start, start + 10) for start in range(0, 1000, 100)]
    hub.fail("status", FILE, times=2, skip=4)
    out: dict[tuple[int, int], bytes] = {}
    path_of(hub).fetch(spans, out)
    assert out == {(start, stop): CONTENT[start:stop] for start, stop in spans}
    assert len(hub.ranges(FILE)) == 12
    hub.fail("status", FILE, skip=3)
    out.clear()
    with pytest.raises(UnreachableError, match="status 500"):
        path_of(hub).fetch(spans, out)
    assert len(out) == 3
    assert all(data == CONTENT[start:stop] for (start, stop), data in out.items())


def test_whole_file_is_accepted_from_a_server_without_ranges(hub: Hub, folder: Path) -> None:
    hub.fail("ignore_range", FILE)
    assert read(path_of(hub), 0, 300_000) == CONTENT
    with pytest.raises(CheckpointError, match="ignores byte ranges"):
        read(path_of(hub), 0, 255_999)


def test_body_of_a_server_without_ranges_is_not_read(hub: Hub, folder: Path) -> None:
    with (folder / FILE).open("wb") as stream:
        stream.truncate(1 << 30)
    hub.fail("ignore_range", FILE)
    with pytest.raises(CheckpointError, match="ignores byte ranges"):
        read(path_of(hub), 0, 1000)
    assert hub.sent[FILE] < 64 << 20  # what fits into socket buffers before they are closed


@pytest.mark.parametrize(("kind", "file"), [("change_etag", FILE), ("change_etag", SMALL), ("change_size", FILE)])
def test_changed_file_is_an_error_without_retries(hub: Hub, folder: Path, kind: str, file: str) -> None:
    path = path_of(hub, file)
    read(path, 0, 10)
    read(path, 10, 20)  # control: the same file
    hub.fail(kind, file)
    hub.reset()
    with pytest.raises(CheckpointError, match="changed on the server while it was being read, from 256,000 bytes"):
        read(path, 20, 30)
    assert len(hub.ranges(file)) == 1


def test_file_that_changes_between_concurrent_ranges_is_an_error(hub: Hub, folder: Path) -> None:
    hub.fail("change_etag", FILE, skip=1)
    with pytest.raises(CheckpointError, match="changed on the server"):
        path_of(hub).fetch([(0, 10), (100, 110)])


def test_retry_after_is_respected_within_limits(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.fail("status", FILE, times=1, status=429, headers={"Retry-After": "1"})
    start = time.monotonic()
    assert read(path_of(hub), 0, 10) == CONTENT[:10]
    assert time.monotonic() - start >= 1
    monkeypatch.setattr(transfer, "MAX_BACKOFF", 0.01)
    for status, wait in ((429, "86400"), (503, "Wed, 21 Oct 2099 07:28:00 GMT")):
        hub.fail("status", FILE, times=1, status=status, headers={"Retry-After": wait})
        assert read(path_of(hub), 0, 10) == CONTENT[:10]


def test_hanging_server_times_out(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 0.3)
    hub.fail("hang", FILE, times=1)
    assert read(path_of(hub), 0, 10) == CONTENT[:10]
    hub.fail("hang", FILE)
    with pytest.raises(UnreachableError, match="Timeout"):
        read(path_of(hub), 0, 10)


def test_very_slow_server_times_out(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "MIN_BYTES_PER_SECOND", 1 << 40)
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 0.3)
    hub.fail("drip", FILE)
    with pytest.raises(UnreachableError, match="Timeout"):
        read(path_of(hub), 0, 200_000)


def test_stopped_server_is_named_as_the_cause(hub: Hub, folder: Path) -> None:
    hub.stop()
    with pytest.raises(UnreachableError, match=r"after 4 attempts: cannot connect to 127\.0\.0\.1:\d+$"):
        read(path_of(hub), 0, 10)


@pytest.mark.parametrize("source", ["model/x.safetensors", "model/x.gguf"])
def test_unreachable_file_is_named_as_it_was_given(hub: Hub, source: str) -> None:
    url = f"{hub.endpoint}/{source}"
    hub.stop()
    with pytest.raises(UnreachableError, match=f"^cannot read {re.escape(url)} after 4 attempts"):
        open_remote(url)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repo": "org/nobody"}, "the hub has no such repository, or it is private"),
        ({"revision": "f" * 40}, "no such revision"),
        ({"file": "no.safetensors"}, "no.safetensors in org/name does not exist$"),
        ({"file": "no.safetensors", "on_hub": False}, "does not exist$"),
        (
            {"repo": "org/nobody", "on_hub": False},
            "does not exist or is not public: the server responded with status 401",
        ),
    ],
)
def test_missing_file_is_an_error_without_retries(
    hub: Hub, folder: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(MissingFileError, match=message):
        read(path_of(hub, **changes), 0, 10)
    assert len(hub.requests) == 1


def test_token_opens_a_gated_repository_and_is_not_sent_elsewhere(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated["org/name"] = "hf_secret"
    for token in (None, "hf_wrong"):
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(InlayerError, match="is gated: request access"):
            read(path_of(hub), 0, 10)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.reset()
    assert read(path_of(hub), 0, 10) == CONTENT[:10]
    assert [(request.origin, request.token) for request in hub.requests] == [("hub", "Bearer hf_secret"), ("cdn", None)]
    hub.reset()
    with pytest.raises(MissingFileError):
        read(path_of(hub, on_hub=False), 0, 10)
    assert hub.requests[0].token is None  # a plain URL never gets the hub's token


def test_netrc_is_not_used(hub: Hub, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    for on_hub in (True, False):
        assert read(path_of(hub, on_hub=on_hub), 0, 10) == CONTENT[:10]
    assert [request.token for request in hub.requests] == ["Bearer hf_secret", None, None, None]


def test_proxy_from_the_environment_is_used(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("no_proxy", "")
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nothing listens there
    with pytest.raises(UnreachableError, match="ClientProxyConnectionError"):
        read(path_of(hub), 0, 10)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert read(path_of(hub), 0, 10) == CONTENT[:10]


def test_refusal_without_a_reason_is_an_error(hub: Hub, folder: Path) -> None:
    hub.fail("status", FILE, status=403)
    with pytest.raises(CheckpointError, match="responded with status 403"):
        read(path_of(hub), 0, 10)
    assert len(hub.ranges(FILE)) == 1


@pytest.mark.parametrize("location", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:text/plain,x"])
def test_redirect_to_another_protocol_is_not_followed(hub: Hub, folder: Path, location: str) -> None:
    hub.fail("redirect", FILE, headers={"Location": location})
    with pytest.raises(CheckpointError, match=r"NonHttpUrlRedirectClientError|InvalidUrlRedirectClientError") as caught:
        read(path_of(hub), 0, 10)
    assert "\n" not in str(caught.value)


def test_offline_mode_sends_no_request(hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnreachableError, match="HF_HUB_OFFLINE is set"):
        read(path_of(hub), 0, 10)
    assert not hub.requests


def test_threads_read_one_file(hub: Hub, folder: Path) -> None:
    found: dict[int, bytes] = {}

    def work(start: int) -> None:
        found[start] = read(path_of(hub), start, start + 1000)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 16_000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {start: CONTENT[start : start + 1000] for start in range(0, 16_000, 1000)}


@pytest.mark.parametrize(("protocol", "package"), [("s3", "s3fs"), ("gs", "gcsfs")])
def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, protocol: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    transfer.open_filesystem.cache_clear()
    with pytest.raises(MissingExtraError, match=rf"{protocol}:// .*: pip install 'inlayer\[hub\]' {package}"):
        read(RemoteFile(f"{protocol}://bucket/file", "file", DiskCache(Path(os.devnull, "none"))), 0, 10)


def test_unknown_host_is_not_retried(monkeypatch: pytest.MonkeyPatch, hub: Hub) -> None:
    def fail(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(UnreachableError, match=r"^((?!attempt).)+: .*Name or service not known"):
        read(RemoteFile("http://nowhere.invalid/file", "file", DiskCache(Path(os.devnull, "none"))), 0, 10)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://nowhere.invalid")
    with pytest.raises(UnreachableError, match=r"^((?!attempt).)+$"):
        open_remote("org/name")
