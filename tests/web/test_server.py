"""The server as a process: its address, its workers, slow clients, and how it stops."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inlayer.cli import main
from inlayer.cli.serve import open_pipelines
from inlayer.errors import InputError
from inlayer.files import base_name
from inlayer.trace import Pipeline
from inlayer.web import Address, server
from inlayer.web.app import make_app
from tests.web.client import TIMEOUT, TOKEN, Client, process, running

# ---- its address


@pytest.mark.slow
def test_prints_one_line_with_the_address_of_the_page() -> None:
    arguments = [sys.executable, "-m", "inlayer", "serve", "--text", "I love dogs & cats", "--text", "naïve 🙂"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        line = program.stdout.readline()
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{43})#(\S+)\n", line)
        assert found, line
        assert found[3] == "text=I%20love%20dogs%20%26%20cats&text=na%C3%AFve%20%F0%9F%99%82"
        page = Client(int(found[1])).send(f"/?token={found[2]}", token=False)
        course = Client(int(found[1])).send(f"/learn?token={found[2]}", token=False)
        program.send_signal(signal.SIGINT)
        program.send_signal(signal.SIGINT)  # an impatient user
        out, err = program.communicate(timeout=TIMEOUT)
    assert page.status == 200
    assert page.body.lower().startswith(b"<!doctype html>")
    assert out == ""
    assert course.status == 200
    serving, course_line = err.splitlines()
    assert serving == "serving default; press Ctrl-C to stop"
    assert course_line == f"course: http://127.0.0.1:{found[1]}/learn?token={found[2]}"
    assert program.returncode == 130


@pytest.mark.slow
def test_json_output_loopback_only_and_a_token_that_is_never_logged() -> None:
    with process() as (program, client, facts):
        assert sorted(facts) == ["host", "models", "port", "token", "url"]
        assert facts["url"] == f"http://127.0.0.1:{client.port}/?token={client.token}"
        assert facts["models"] == ["default"]
        if sys.platform == "linux":  # the supervisor does not import torch
            assert "libtorch" not in Path(f"/proc/{program.pid}/maps").read_text()
        trace = client.send("/api/walk", {"texts": ["I love dogs"]}).json
        assert trace["texts"][0]["text"] == "I love dogs"
        assert facts["host"] == "127.0.0.1"  # no other address of this machine answers
        others = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)]
        for other in {*others} - {"127.0.0.1"}:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((other, facts["port"]), timeout=TIMEOUT)
        client.send(f"/?token={client.token}", token=False)
        client.send(f"/no/such?token={client.token}", token=False)
        client.send(f"/api/walk?token={client.token}", b"{", token=False)
        client.raw(f"GET /?token={client.token} HTTP/1.1\r\n\r\n".encode())
        client.send(f"/?token={client.token}", headers={"Upgrade": "websocket", "Connection": "Upgrade"})
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=TIMEOUT)
    assert (out, err) == ("", "")


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
def test_urls_of_addresses(host: str, url: str, loopback: bool) -> None:
    address = Address(host=host, port=80, token="x", fragment="f", models=[])
    assert (address.url, address.is_loopback) == (url, loopback)


@pytest.mark.slow
def test_a_printed_address_says_how_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    address = Address(host="127.0.0.1", port=80, token="t", fragment="", models=["default"])
    server.print_address(address)
    assert capsys.readouterr() == (f"{address.url}\n", "press Ctrl-C to stop\n")


def test_warns_when_the_address_is_not_loopback() -> None:
    with process("--host", "0.0.0.0") as (program, client, facts):
        assert facts["url"].startswith("http://127.0.0.1:")
        assert client.send("/api/models").status == 200
        addresses = socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)
        for address in {info[4][0] for info in addresses}:  # as the sentence says
            page = Client(client.port, client.token, host=address).send(f"/?token={client.token}", token=False)
            assert page.status == 200
        assert client.send("/api/models", headers={"Host": f"my-box:{client.port}"}).status == 403
        program.send_signal(signal.SIGINT)
        _, err = program.communicate(timeout=TIMEOUT)
    warning, advice = err.splitlines()
    assert warning.startswith("0.0.0.0 is not a loopback address")
    assert advice == (
        "on another machine, replace 127.0.0.1 in the address with an IP address of this machine; "
        "a host name is accepted only with --host NAME"
    )


@pytest.mark.parametrize(
    ("host", "port", "error"),
    [
        ("no.such.host.invalid", 0, "host 'no.such.host.invalid' is not an address of this machine"),
        ("192.0.2.1", 0, "192.0.2.1 port 0: Cannot assign requested address; use another port, or 0 for any free one"),
        ("", 0, "host is empty"),
        ("x" * 300, 0, "is not an address of this machine"),
        ("127.0.0.1", 65_536, "port 65536"),
    ],
)
def test_invalid_hosts_and_ports(host: str, port: int, error: str) -> None:
    with pytest.raises(InputError, match=re.escape(error)):
        server.bind(host, port)


def test_a_port_in_use_is_one_line(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(sys, "argv", ["inlayer", "serve", "--port", str(port)])
        with pytest.raises(SystemExit) as stopped:
            main()
    assert stopped.value.code == 2
    error = f"inlayer: 127.0.0.1 port {port}: the port is already in use; use another port, or 0 for any free one\n"
    assert capfd.readouterr() == ("", error)


def test_a_missing_package_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['inlayer', 'serve'];"
        "from inlayer.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert done.returncode == 2
    assert done.stderr == "inlayer: the web server needs FastAPI and uvicorn: pip install 'inlayer[torch,web]'\n"


@pytest.mark.slow
def test_a_closed_pipe_is_not_a_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "inlayer", "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


# ---- its models


def test_models_are_named_after_the_last_part_of_their_source(tmp_path: Path) -> None:
    import inlayer

    sample = Path(inlayer.__file__).parent / "samples" / "default"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model").symlink_to(sample)
    sources = ["default", str(tmp_path / "a" / "model"), f"{tmp_path / 'b' / 'model'}/", "default"]
    pipelines = open_pipelines(tuple(sources))
    assert list(pipelines) == ["default", "model", "model-2", "default-2"]
    assert [one.facts().name for one in pipelines.values()] == list(pipelines)
    assert base_name(Path("org/name@revision")) == "name@revision"
    assert base_name(Path("/")) == "/"


def test_at_least_one_model_is_required() -> None:
    with pytest.raises(InputError, match="no model to serve"):
        make_app({}, token="x")


# ---- slow clients


def limit_seconds(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    for name, value in seconds.items():
        monkeypatch.setattr(server, f"{name.upper()}_SECONDS", value)


def closed(connection: socket.socket) -> bytes:
    """Read until the server closes the connection; a timeout fails the test."""
    rest = b""
    while True:
        try:
            data = connection.recv(65_536)
        except ConnectionError:
            return rest
        if not data:
            return rest
        rest += data


def test_slow_headers_are_cut_off(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_seconds(monkeypatch, head=0.5)
    with running({"default": pipeline}) as client:
        silent = socket.create_connection((client.host, client.port), timeout=TIMEOUT)
        slow = socket.create_connection((client.host, client.port), timeout=TIMEOUT)
        with silent, slow:
            start = time.monotonic()
            slow.sendall(b"GET / HTTP/1.1\r\n")
            try:
                while time.monotonic() - start < TIMEOUT:
                    slow.sendall(b"X")
                    time.sleep(0.05)
            except ConnectionError:
                pass
            assert time.monotonic() - start < TIMEOUT / 2
            assert closed(silent) == b""
        assert client.send("/api/models").status == 200


def test_an_idle_connection_is_closed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_seconds(monkeypatch, idle=0.5)
    with running({"default": pipeline}) as client:
        asked = f"GET /api/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        with socket.create_connection((client.host, client.port), timeout=TIMEOUT) as connection:
            for _ in range(2):
                connection.sendall(asked)
                answer = b""
                while not answer.endswith(b"}]}"):
                    answer += connection.recv(65_536)
                assert answer.startswith(b"HTTP/1.1 200 ")
            connection.sendall(b"G")  # the connection is not idle, but there is no request either
            assert closed(connection) == b""


def test_only_our_own_timer_closes_idle_connections() -> None:
    assert server.make_config(make_app).timeout_keep_alive > server.IDLE_SECONDS


def test_a_slow_body_is_rejected(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.web.request_body.BODY_SECONDS", 0.5)
    head = (
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{"
    )
    with running({"default": pipeline}) as client:
        answer = client.raw(head.encode())
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"did not arrive within 0.5 s" in answer


@pytest.mark.slow
def test_a_response_that_is_not_read_is_dropped(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    body = json.dumps({"texts": ["I love dogs " * 300], "max_tokens": 1_024, "dims": 32}).encode()
    asked = (
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with running({"default": pipeline}) as client:
        whole = client.send("/api/walk", body).body
        limit_seconds(monkeypatch, idle=0.5, request=0.5)
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(TIMEOUT)
        with connection:
            connection.connect((client.host, client.port))
            dropped, lose = threading.Event(), server.BoundedProtocol.connection_lost

            def connection_lost(self: server.BoundedProtocol, error: Exception | None) -> None:
                lose(self, error)
                if self.client == connection.getsockname():
                    dropped.set()

            monkeypatch.setattr(server.BoundedProtocol, "connection_lost", connection_lost)
            connection.sendall(asked * 8)
            assert dropped.wait(TIMEOUT)
            got = len(closed(connection))
        assert got < 8 * len(whole)
        assert client.send("/api/models").status == 200


def test_connections_are_limited(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with running({"default": pipeline}) as client:
        kept = [socket.create_connection((client.host, client.port), timeout=TIMEOUT) for _ in range(3)]
        with socket.create_connection((client.host, client.port), timeout=TIMEOUT) as fourth:
            assert closed(fourth) == b""
        for connection in kept:
            connection.close()
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            try:
                assert client.send("/api/models").status == 200
                break
            except ConnectionError:  # the server has not noticed yet that they left
                time.sleep(0.05)


def test_the_queue_of_connections_is_long_again_when_workers_have_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the handlers of a real supervisor
    config = server.make_config(make_app, workers=2)
    assert config.backlog == 1  # connections that a worker accepts at once
    with server.bind("127.0.0.1", 0) as listener:
        supervisor = server.Supervisor(config, listener, lambda: None)
        listener.listen(config.backlog)  # as a worker does
        supervisor.keep_subprocess_alive()
        # Nobody accepts them: with a queue of one, the third would wait in vain.
        clients = [socket.create_connection(listener.getsockname(), timeout=TIMEOUT) for _ in range(50)]
        for client in clients:
            client.close()


def test_a_broken_request_does_no_harm(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    head = (
        f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: {}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with running({"default": pipeline}) as client:
        for kind in ("application/json", "text/plain"):  # the second is rejected before the damage arrives
            with socket.create_connection((client.host, client.port), timeout=TIMEOUT) as connection:
                connection.sendall(head.format(kind).encode())
                if kind == "text/plain":
                    assert connection.recv(65_536).startswith(b"HTTP/1.1 415 ")
                connection.sendall(b"no chunk\r\n")
                closed(connection)
        with socket.create_connection((client.host, client.port), timeout=TIMEOUT) as connection:
            connection.sendall(head.format("application/json").encode() + b"5\r\n{")  # and disconnect
        assert client.send("/api/models").status == 200
    assert caplog.text == ""


# ---- stopping


@pytest.mark.slow
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_stops_while_requests_are_running(sent: signal.Signals, code: int) -> None:
    """With an idle connection, a half-sent request, running walks and more in the queue."""
    with process() as (program, client, _):
        workers = children(program.pid) if sys.platform == "linux" else []
        idle = socket.create_connection((client.host, client.port), timeout=TIMEOUT)
        idle.sendall(f"GET /api/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client.token}\r\n\r\n".encode())
        assert idle.recv(65_536)
        half = socket.create_connection((client.host, client.port), timeout=TIMEOUT)
        half.sendall(
            f"POST /api/walk HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {client.token}\r\n"
            "Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{".encode()
        )
        threads = [threading.Thread(target=send_many, args=[client, number], daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        time.sleep(1)
        program.send_signal(sent)
        out, err = program.communicate(timeout=TIMEOUT)
        assert (program.returncode, out, err) == (code, "", "")
        for thread in threads:
            thread.join(TIMEOUT)
        idle.close()
        half.close()
        wait_until(lambda: not any(map(is_alive, workers)))
        if sent == signal.SIGINT:
            with process("--port", str(client.port)) as (_, again, _):  # the port is free
                assert again.send("/api/models").status == 200
                assert again.token != client.token


def send_many(client: Client, number: int) -> None:
    try:
        for turn in range(1_000):
            text = f"{number} {turn} " + "many words in a row " * 700
            client.send("/api/walk", {"texts": [text], "max_tokens": 1_024, "dims": 32})
    except OSError:  # the server is gone
        pass


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_while_starting_stops_it() -> None:
    arguments = [sys.executable, "-m", "inlayer", "serve"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        wait_until(lambda: bool(children(program.pid)))  # it has started to import torch in another process
        program.send_signal(signal.SIGINT)
        try:
            assert program.communicate(timeout=TIMEOUT) == ("", "")
        finally:
            program.kill()
    assert program.returncode == 130


def test_ctrl_c_while_the_fork_server_starts_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multiprocessing.forkserver.ensure_running", lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        server.start_fork_server()


@pytest.mark.slow
def test_a_model_that_no_worker_can_open_is_one_line(tmp_path: Path) -> None:
    import inlayer

    shutil.copytree(Path(inlayer.__file__).parent / "samples" / "default", tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rope_theta": 0}))
    arguments = [sys.executable, "-m", "inlayer", "serve", "--model", str(tmp_path / "model")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "rotary base theta is 0" in done.stderr


# ---- worker processes


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_end_with_a_killed_server() -> None:
    with process() as (program, client, _):
        workers = children(program.pid)
        assert len(workers) >= server._workers()
        assert client.send("/api/walk", {"texts": ["I love dogs"]}).status == 200
        program.kill()
        program.wait(TIMEOUT)
        wait_until(lambda: not any(map(is_alive, workers)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_that_open_the_models_end_with_a_killed_server() -> None:
    script = "import functools, time\nfrom inlayer.web import serve\nserve(functools.partial(time.sleep, 3600))\n"

    def opening() -> list[int]:
        return [grandchild for child in children(program.pid) for grandchild in children(child)]

    with subprocess.Popen([sys.executable, "-c", script]) as program:
        try:
            wait_until(lambda: bool(opening()))
            started = [*children(program.pid), *opening()]
        finally:
            program.kill()
    wait_until(lambda: not any(map(is_alive, started)))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_worker_that_dies_is_replaced() -> None:
    with process() as (program, client, _):
        killed = children(program.pid)[-1]
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: len([pid for pid in children(program.pid) if pid != killed]) >= server._workers())
        assert {client.send("/api/models").status for _ in range(10)} == {200}


@pytest.mark.slow
def test_every_worker_gives_the_same_response() -> None:
    requests: list[tuple[str, Any]] = [
        ("/api/walk", {"texts": ["I love dogs " * 50]}),
        ("/api/token?id=11&k=8", None),
        ("/api/initialization?seed=7", None),
    ]
    with process() as (_, client, _):
        for path, body in requests:
            responses = [client.send(path, body) for _ in range(12)]
            assert {response.status for response in responses} == {200}
            assert len({response.body for response in responses}) == 1
        wrong = Client(client.port, "wrong")
        assert {wrong.send("/api/models").status for _ in range(12)} == {401}


def test_a_model_that_cannot_be_served_is_one_line(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "inlayer", "serve", "--model", str(tmp_path / "nothing")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
