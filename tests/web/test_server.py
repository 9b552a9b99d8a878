"""The server as a process: it says where it is, bounds its clients, stops at once and leaves nothing behind."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from inlayer.cli import main
from inlayer.cli.serve import last_name, open_pipelines
from inlayer.errors import InputError
from inlayer.trace import Pipeline
from inlayer.web import Address, make_app, server
from tests.web.client import PATIENCE, TOKEN, Place, process, running

MOMENT = 5.0  # seconds to stop in; on an idle machine it is a fifth of one


# ---- where it is


def test_the_address_is_one_line_that_opens_the_page() -> None:
    arguments = [sys.executable, "-m", "inlayer", "serve", "--text", "I love dogs & cats", "--text", "naïve 🙂"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        line = program.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})#(\S+)\n", line)
        assert found, line
        assert found[3] == "text=I%20love%20dogs%20%26%20cats&text=na%C3%AFve%20%F0%9F%99%82"
        page = Place(int(found[1])).ask(f"/?token={found[2]}", token=False)
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=PATIENCE)
    assert page.status == 200
    assert page.body.lower().startswith(b"<!doctype html>")
    assert out == ""
    assert err == "serving default; the course is at /learn, a link of the page; Ctrl-C stops it\n"
    assert program.returncode == 130


def test_json_tells_the_same_and_it_is_loopback() -> None:
    with process() as (_, place, facts):
        assert sorted(facts) == ["host", "models", "port", "token", "url"]
        assert facts["url"] == f"http://127.0.0.1:{place.port}/?token={place.token}"
        assert facts["models"] == ["default"]
        trace = place.ask("/api/walk", {"texts": ["I love dogs"]}).json
        assert trace["texts"][0]["text"] == "I love dogs"
        assert facts["host"] == "127.0.0.1"  # and no other address of this machine:
        others = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)]
        for other in {*others} - {"127.0.0.1"}:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, facts["port"]), timeout=PATIENCE)


@pytest.mark.parametrize(
    ("host", "url", "loopback"),
    [
        ("127.0.0.1", "http://127.0.0.1:80/?token=x#f", True),
        ("localhost", "http://localhost:80/?token=x#f", True),
        ("::1", "http://[::1]:80/?token=x#f", True),
        ("0.0.0.0", "http://127.0.0.1:80/?token=x#f", False),
        ("::", "http://[::1]:80/?token=x#f", False),
        ("192.168.1.2", "http://192.168.1.2:80/?token=x#f", False),
        ("my-box", "http://my-box:80/?token=x#f", False),
    ],
)
def test_addresses(host: str, url: str, loopback: bool) -> None:
    address = Address(host=host, port=80, token="x", fragment="f", models=[])
    assert (address.url, address.is_loopback) == (url, loopback)


def test_a_word_where_it_is_not_loopback() -> None:
    with process("--host", "0.0.0.0") as (program, place, facts):
        assert facts["url"].startswith("http://127.0.0.1:")
        assert place.ask("/api/models").status == 200
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=PATIENCE)
    assert err.startswith("0.0.0.0 is no loopback address")


@pytest.mark.parametrize(
    ("host", "port", "says"),
    [
        ("no.such.host.invalid", 0, "host 'no.such.host.invalid' is no address of this machine"),
        ("192.0.2.1", 0, "192.0.2.1 port 0: Cannot assign requested address; give another port, or 0 for any free one"),
        ("", 0, "host is empty"),
        ("x" * 300, 0, "is no address of this machine"),
        ("127.0.0.1", 65_536, "port 65536"),
    ],
)
def test_where_nothing_can_be_bound(host: str, port: int, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        server.bind(host, port)


def test_a_taken_port_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sys, "argv", ["inlayer", "serve", "--port", str(port)])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code == 2
    says = f"inlayer: 127.0.0.1 port {port}: Address already in use; give another port, or 0 for any free one\n"
    assert capfd.readouterr() == ("", says)


def test_without_the_packages_the_install_line_is_said() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['inlayer', 'serve'];"
        "from inlayer.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 2
    assert done.stderr == "inlayer: the server is starlette and uvicorn: pip install 'inlayer[web]'\n"


def test_a_reader_who_left_is_no_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "inlayer", "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


# ---- which models


def test_models_get_the_last_name_of_their_source(tmp_path: Path) -> None:
    import inlayer

    sample = Path(inlayer.__file__).parent / "samples" / "default"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model").symlink_to(sample)
    sources = ["default", str(tmp_path / "a" / "model"), f"{tmp_path / 'b' / 'model'}/", "default"]
    lines = open_pipelines(sources)
    assert list(lines) == ["default", "model", "model-2", "default-2"]
    assert [line.facts().name for line in lines.values()] == list(lines)
    assert last_name("org/name@revision") == "name@revision"
    assert last_name("/") == "/"


def test_no_model_is_no_server() -> None:
    with pytest.raises(InputError, match="no model to serve"):
        make_app({}, token="x")


# ---- clients that take their time


def patience(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    for name, value in seconds.items():
        monkeypatch.setattr(server, f"{name.upper()}_SECONDS", value)


def closed(connection: socket.socket) -> bytes:
    """What still comes until the server closes; a timeout here is a failure."""
    rest = b""
    while True:
        try:
            data = connection.recv(65_536)
        except ConnectionError:
            return rest
        if not data:
            return rest
        rest += data


def test_a_head_that_trickles_is_cut_off(line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    patience(monkeypatch, head=0.5)
    with running({"default": line}) as (place, _):
        silent = socket.create_connection((place.host, place.port), timeout=PATIENCE)
        slow = socket.create_connection((place.host, place.port), timeout=PATIENCE)
        with silent, slow:
            start = time.monotonic()
            slow.sendall(b"GET / HTTP/1.1\r\n")
            try:
                while time.monotonic() - start < PATIENCE:
                    slow.sendall(b"X")
                    time.sleep(0.05)
            except ConnectionError:
                pass
            assert time.monotonic() - start < PATIENCE / 2
            assert closed(silent) == b""
        assert place.ask("/api/models").status == 200


def test_a_kept_connection_is_not_kept_for_ever(line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    patience(monkeypatch, idle=0.5)
    with running({"default": line}) as (place, _):
        asked = f"GET /api/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        with socket.create_connection((place.host, place.port), timeout=PATIENCE) as connection:
            for _ in range(2):
                connection.sendall(asked)
                answer = b""
                while not answer.endswith(b"}]}"):
                    answer += connection.recv(65_536)
                assert answer.startswith(b"HTTP/1.1 200 ")
            connection.sendall(b"G")  # not idle, but not asking either
            assert closed(connection) == b""


def test_a_body_that_trickles_is_given_up(line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.web.guard.BODY_SECONDS", 0.5)
    head = (
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"
    )
    with running({"default": line}) as (place, _):
        answer = place.raw(head.encode())
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 0.5 s" in answer


def test_an_answer_that_is_not_read_is_dropped(line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"texts": ["I love dogs " * 300], "tokens": 1_024, "dims": 32}).encode()
    asked = (
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with running({"default": line}) as (place, api):
        place.ask("/api/walk", body)  # kept from here on: the time below is not the walk's
        patience(monkeypatch, idle=0.5, request=0.5)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(PATIENCE)
        with connection:
            connection.connect((place.host, place.port))
            connection.sendall(asked * 8)
            time.sleep(2)
            got = len(closed(connection))
        whole = len(api.answers.get(next(iter(api.answers._kept))) or b"")
        assert 0 < got < 8 * whole
        assert place.ask("/api/models").status == 200


def test_there_is_an_end_to_connections(line: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with running({"default": line}) as (place, _):
        kept = [socket.create_connection((place.host, place.port), timeout=PATIENCE) for _ in range(3)]
        with socket.create_connection((place.host, place.port), timeout=PATIENCE) as fourth:
            assert closed(fourth) == b""
        for connection in kept:
            connection.close()
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                assert place.ask("/api/models").status == 200
                break
            except ConnectionError:  # the server has not yet seen them leave
                time.sleep(0.05)


def test_damage_in_the_middle_of_a_request_does_no_harm(line: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    head = (
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with running({"default": line}) as (place, _):
        for kind in ("application/json", "text/plain"):  # the second is answered before the damage arrives
            with socket.create_connection((place.host, place.port), timeout=PATIENCE) as connection:
                connection.sendall(head.format(kind).encode())
                if kind == "text/plain":
                    assert connection.recv(65_536).startswith(b"HTTP/1.1 415 ")
                connection.sendall(b"no chunk\r\n")
                closed(connection)
        with socket.create_connection((place.host, place.port), timeout=PATIENCE) as connection:
            connection.sendall(head.format("application/json").encode() + b"5\r\n{")  # and gone
        assert place.ask("/api/models").status == 200
    assert caplog.text == ""


# ---- the end


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_it_stops_at_once_whatever_goes_on(sent: signal.Signals, code: int) -> None:
    """With a connection that idles, a request half sent, walks under way and more in line."""
    with process() as (program, place, _):
        idle = socket.create_connection((place.host, place.port), timeout=PATIENCE)
        idle.sendall(f"GET /api/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {place.token}\r\n\r\n".encode())
        assert idle.recv(65_536)
        half = socket.create_connection((place.host, place.port), timeout=PATIENCE)
        half.sendall(
            f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {place.token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{".encode()
        )
        threads = [threading.Thread(target=ask_much, args=[place, number], daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        start = time.monotonic()
        program.send_signal(sent)
        out, err = program.communicate(timeout=PATIENCE)
        assert time.monotonic() - start < MOMENT
        assert (program.returncode, out, err) == (code, "", "")
        for thread in threads:
            thread.join(PATIENCE)
        idle.close()
        half.close()
        with process("--port", str(place.port)) as (_, again, _):  # the port is free
            assert again.ask("/api/models").status == 200
            assert again.token != place.token


def ask_much(place: Place, number: int) -> None:
    try:
        for turn in range(1_000):
            text = f"{number} {turn} " + "many words in a row " * 700
            place.ask("/api/walk", {"texts": [text], "tokens": 1_024, "dims": 32})
    except OSError:  # the server is gone
        pass


def test_ctrl_c_while_it_starts_leaves_no_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "inlayer", "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        line = program.stdout.readline()
        assert line
        program.send_signal(signal.SIGINT)
        program.send_signal(signal.SIGINT)  # somebody is in a hurry
        _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode == 130
    assert "Traceback" not in err


def test_the_token_is_in_no_log() -> None:
    with process() as (program, place, _):
        place.ask(f"/?token={place.token}", token=False)
        place.ask(f"/no/such?token={place.token}", token=False)
        place.ask(f"/api/walk?token={place.token}", b"{", token=False)
        place.raw(f"GET /?token={place.token} HTTP/1.1\r\n\r\n".encode())
        place.ask(f"/?token={place.token}", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=PATIENCE)
    assert (out, err) == ("", "")
