"""Test clients: a server in a thread, a server as a process, and a plain HTTP client."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from inlayer.learn.progress_file import ProgressFile
from inlayer.trace import Pipeline
from inlayer.web.app import make_app
from inlayer.web.server import bind, make_config

TOKEN = "a-token-for-tests"
TIMEOUT = 300.0  # seconds; a server that hangs fails the test, it does not stop the run


@dataclass
class Response:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one line of an error; any other body fails the test."""
        body = self.json
        assert list(body) == ["error"]
        assert body["error"]
        assert "\n" not in body["error"]
        assert "Traceback" not in body["error"]
        return str(body["error"])


@dataclass
class Client:
    """Sends requests to a server."""

    port: int
    token: str = TOKEN
    host: str = "127.0.0.1"

    def send(
        self,
        path: str,
        body: bytes | str | Any = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        token: bool = True,
    ) -> Response:
        """Send one request on its own connection; a body that is not bytes is sent as JSON."""
        sent: dict[str, str] = {"Authorization": f"Bearer {self.token}"} if token else {}
        if body is not None:
            sent["Content-Type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT)
        try:
            connection.request(
                method or ("GET" if body is None else "POST"), path, body, headers={**sent, **(headers or {})}
            )
            response = connection.getresponse()
            return Response(response.status, response.headers, response.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Send bytes and return everything until the server closes the connection."""
        with socket.create_connection((self.host, self.port), timeout=TIMEOUT) as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65_536), b""))


@contextmanager
def learner(home: Path) -> Iterator[Path]:
    """Give a learner their own progress in `home`; yields the folder of their files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INLAYER_DATA", str(home))
        with ProgressFile().edit() as state:
            state.folder = str(home / "files")
        yield home / "files"


@contextmanager
def running(
    pipelines: Mapping[str, Pipeline],
    *,
    hosts: tuple[str, ...] = (),
    allow_code_execution: bool = False,
    api_key: str | None = None,
) -> Iterator[Client]:
    """Run a real server on a free loopback port, in a thread."""
    app = make_app(pipelines, token=TOKEN, hosts=hosts, allow_code_execution=allow_code_execution, api_key=api_key)
    server = uvicorn.Server(make_config(lambda: app))
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    end = time.monotonic() + TIMEOUT
    while not server.started and time.monotonic() < end:
        time.sleep(0.01)
    try:
        yield Client(port)
    finally:
        server.should_exit = server.force_exit = True
        thread.join(TIMEOUT)
        listener.close()
        assert not thread.is_alive()


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Client, dict[str, Any]]]:
    """Run `inlayer serve --json` as a user would; killed at the end if it is still running."""
    program = subprocess.Popen(
        [sys.executable, "-m", "inlayer", "serve", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stderr is not None
    with program:
        try:
            line = program.stdout.readline()
            assert line, program.stderr.read()
            facts = json.loads(line)
            yield program, Client(facts["port"], facts["token"]), facts
        finally:
            if program.poll() is None:
                program.kill()
