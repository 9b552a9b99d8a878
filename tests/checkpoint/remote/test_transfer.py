"""One byte range: the right bytes, or a clear error, whatever the server does."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from inlayer.checkpoint.remote import transfer
from inlayer.checkpoint.remote.transfer import AbsentError, Facts, Place, fetch
from inlayer.errors import CheckpointError, InlayerError, MissingFileError
from tests.checkpoint.remote.server import Hub

CONTENT = bytes(range(256)) * 1000
FILE = "weights.safetensors"  # redirected to the other origin
SMALL = "index.json"  # not redirected


@pytest.fixture
def place(hub: Hub, tmp_path: Path) -> Place:
    folder = tmp_path / "repo"
    folder.mkdir()
    for name in (FILE, SMALL):
        (folder / name).write_bytes(CONTENT)
    return Place(repo_id="org/name", commit=hub.add("org/name", folder), file=FILE)


def other(place: Place, **changes: str) -> Place:
    return Place(**(vars(place) | changes))


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (5, 300), (255_000, 256_000), (255_999, 256_000), (0, 256_000)])
@pytest.mark.parametrize("file", [FILE, SMALL])
def test_a_range_is_that_of_the_file(place: Place, file: str, start: int, stop: int) -> None:
    data, facts = fetch(other(place, file=file), start, stop)
    assert data == CONTENT[start:stop]
    assert data != CONTENT[start + 1 : stop + 1]  # control: the content tells neighbors apart
    assert facts.size == len(CONTENT)
    assert facts.etag


def test_a_range_past_the_end_gives_what_there_is(place: Place) -> None:
    assert fetch(place, 255_000, 300_000)[0] == CONTENT[255_000:]
    with pytest.raises(CheckpointError, match=r"weights.safetensors of org/name@\w{8} ends before byte 256,000"):
        fetch(place, 256_000, 256_001)


TRANSIENT = {
    "ignores the range": "ignores byte ranges",
    "cuts the connection": "RemoteProtocolError",
    "announces too little": "announced 999 bytes",
    "announces too much": "announced 1001 bytes",
    "announces nothing": "announced None bytes",
    "shifts the range": r"sent bytes 501..1,500 of 256,000 when asked for 500",
    "starts elsewhere": r"sent bytes 501..1,499 of 256,000 when asked for 500",
    "shortens the range": r"sent bytes 500..1,498",
    "names no range": "did not say which range",
    "compresses": "compressed",
    "status": "status 500",
}


@pytest.mark.parametrize("file", [FILE, SMALL])
@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_fault_that_passes_is_overcome(hub: Hub, place: Place, kind: str, file: str) -> None:
    hub.fail(kind, file, times=transfer.ATTEMPTS - 1, after=100)
    assert fetch(other(place, file=file), 500, 1500)[0] == CONTENT[500:1500]
    assert len(hub.ranges(file)) == transfer.ATTEMPTS


@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_fault_that_stays_is_one_clear_line(hub: Hub, place: Place, kind: str) -> None:
    hub.fail(kind, FILE, after=0)
    with pytest.raises(CheckpointError, match=TRANSIENT[kind]) as caught:
        fetch(place, 500, 1500)
    message = str(caught.value)
    assert message.startswith(f"bytes 500..1,499 of {place} could not be fetched, 4 times tried: ")
    assert "\n" not in message
    assert "http://" not in message  # an address may carry a signature
    assert len(hub.ranges(FILE)) == transfer.ATTEMPTS


def test_a_cut_range_goes_on_where_it_was_cut(hub: Hub, place: Place) -> None:
    hub.fail("cuts the connection", FILE, times=2, after=400)
    assert fetch(place, 500, 1500)[0] == CONTENT[500:1500]
    assert hub.ranges(FILE) == [(500, 1499), (900, 1499), (1300, 1499)]


def test_a_connection_that_breaks_often_but_brings_much_does_not_count_as_failing(
    hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "PROGRESS", 10_000)
    hub.fail("cuts the connection", FILE, after=20_000)
    assert fetch(place, 0, 256_000)[0] == CONTENT
    assert len(hub.ranges(FILE)) > 2 * transfer.ATTEMPTS


def test_the_whole_file_is_taken_from_a_server_without_ranges_if_it_was_wanted(hub: Hub, place: Place) -> None:
    hub.fail("ignores the range", FILE)
    assert fetch(place, 0, 300_000)[0] == CONTENT
    with pytest.raises(CheckpointError, match="ignores byte ranges"):
        fetch(place, 0, 255_999)


def test_a_server_without_ranges_is_not_listened_to(hub: Hub, place: Place, tmp_path: Path) -> None:
    with (tmp_path / "repo" / FILE).open("wb") as stream:
        stream.truncate(1 << 30)
    hub.fail("ignores the range", FILE)
    with pytest.raises(CheckpointError, match="ignores byte ranges"):
        fetch(place, 0, 1000)
    assert hub.sent[FILE] < 64 << 20  # what the sockets' buffers took before they were closed


@pytest.mark.parametrize(("kind", "file"), [("changes etag", FILE), ("changes etag", SMALL), ("changes size", FILE)])
def test_a_file_that_changes_is_an_error_at_once(hub: Hub, place: Place, kind: str, file: str) -> None:
    _, facts = fetch(other(place, file=file), 0, 10)
    fetch(other(place, file=file), 10, 20, facts)  # control: the same file
    hub.fail(kind, file)
    hub.forget()
    with pytest.raises(CheckpointError, match="changed on the server while it was read: 256,000 bytes"):
        fetch(other(place, file=file), 20, 30, facts)
    assert len(hub.ranges(file)) == 1
    with pytest.raises(CheckpointError, match="changed on the server"):
        fetch(other(place, file=file), 0, 10, Facts(size=256_000, etag="made up"))


def test_a_file_that_changes_between_two_halves_of_a_range_is_an_error(hub: Hub, place: Place) -> None:
    hub.fail("cuts the connection", FILE, times=1)
    hub.fail("changes etag", FILE, skip=1)
    with pytest.raises(CheckpointError, match="changed on the server"):
        fetch(place, 0, 5000)


def test_too_many_requests_are_answered_by_waiting_as_long_as_told(
    hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.fail("status", FILE, times=1, status=429, headers={"Retry-After": "1"})
    begun = time.monotonic()
    assert fetch(place, 0, 10)[0] == CONTENT[:10]
    assert time.monotonic() - begun >= 1
    monkeypatch.setattr(transfer, "LONGEST_WAIT", 0.01)  # nobody waits for a day
    hub.fail("status", FILE, times=1, status=429, headers={"Retry-After": "86400"})
    assert fetch(place, 0, 10)[0] == CONTENT[:10]
    hub.fail("status", FILE, times=1, status=503, headers={"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"})
    assert fetch(place, 0, 10)[0] == CONTENT[:10]


def test_a_server_that_hangs_is_left(hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 0.1)
    hub.fail("hangs", FILE, times=1)
    assert fetch(place, 0, 10)[0] == CONTENT[:10]
    hub.fail("hangs", FILE)
    begun = time.monotonic()
    with pytest.raises(CheckpointError, match="ReadTimeout"):
        fetch(place, 0, 10)
    assert time.monotonic() - begun < 5


def test_a_server_that_drips_is_left(hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "SLOWEST", 1 << 40)
    monkeypatch.setattr(transfer, "READ_TIMEOUT", 0.05)
    hub.fail("drips", FILE)
    with pytest.raises(CheckpointError, match="too slowly"):
        fetch(place, 0, 200_000)


def test_a_server_that_is_down_is_named_as_the_cause(hub: Hub, place: Place) -> None:
    hub.stop()
    with pytest.raises(CheckpointError, match=r"4 times tried: ConnectError"):
        fetch(place, 0, 10)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"repo_id": "org/nobody"}, MissingFileError, "no such repository on the hub, or a private one"),
        ({"commit": "f" * 40}, MissingFileError, "no such revision"),
        ({"file": "no.safetensors"}, AbsentError, "no.safetensors of org/name@.* no such file"),
    ],
)
def test_what_is_not_there_is_said_at_once(
    hub: Hub, place: Place, changes: dict[str, str], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        fetch(other(place, **changes), 0, 10)
    assert type(caught.value) is kind
    assert len(hub.seen) == 1


def test_a_gate_opens_with_the_token_and_no_other_host_sees_it(
    hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.gated["org/name"] = "hf_secret"
    for token in (None, "hf_wrong"):
        if token:
            monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(InlayerError, match="behind a gate: ask for access"):
            fetch(place, 0, 10)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.forget()
    assert fetch(place, 0, 10)[0] == CONTENT[:10]
    assert [(seen.origin, seen.token) for seen in hub.seen] == [("hub", "Bearer hf_secret"), ("cdn", None)]


def test_a_refusal_without_a_reason_is_an_error(hub: Hub, place: Place) -> None:
    hub.fail("status", FILE, status=403)
    with pytest.raises(CheckpointError, match="refused by the hub with status 403"):
        fetch(place, 0, 10)
    assert len(hub.ranges(FILE)) == 1


def test_offline_mode_asks_nobody(hub: Hub, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CheckpointError, match="HF_HUB_OFFLINE"):
        fetch(place, 0, 10)
    assert not hub.seen


def test_many_threads_read_one_file(place: Place) -> None:
    found: dict[int, bytes] = {}

    def read(start: int) -> None:
        found[start] = fetch(place, start, start + 1000)[0]

    threads = [threading.Thread(target=read, args=(start,)) for start in range(0, 16_000, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {start: CONTENT[start : start + 1000] for start in range(0, 16_000, 1000)}
