"""A server in a thread of its own, a server as a process of its own, and the plainest of clients."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from inlayer.learn.progress import Progress
from inlayer.trace import Pipeline
from inlayer.web.api import Api
from inlayer.web.guard import Guard
from inlayer.web.schemas import Limits
from inlayer.web.server import Server, bind

TOKEN = "a-token-for-tests"
PATIENCE = 60.0  # seconds; a server that hangs fails the test, it does not stop the run


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """The one line of an error; anything else in its place is a failure."""
        said = self.json
        assert list(said) == ["error"]
        assert said["error"]
        assert "\n" not in said["error"]
        assert "Traceback" not in said["error"]
        return str(said["error"])


@dataclass
class Place:
    """Where a server is, and how to ask it."""

    port: int
    token: str = TOKEN
    host: str = "127.0.0.1"

    def ask(
        self,
        path: str,
        body: bytes | str | Any = None,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        token: bool = True,
    ) -> Answer:
        """One request on a connection of its own; a body that is no bytes is sent as JSON."""
        sent: dict[str, str] = {"Authorization": f"Bearer {self.token}"} if token else {}
        if body is not None:
            sent["Content-Type"] = "application/json"
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)
        try:
            connection.request(
                method or ("GET" if body is None else "POST"), path, body, headers={**sent, **(headers or {})}
            )
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """Whatever comes back on these bytes until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=PATIENCE) as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65_536), b""))


@contextmanager
def learner(home: Path) -> Iterator[Path]:
    """Somebody who takes the course: progress of his own in `home`, and a folder of files, which this gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INLAYER_DATA", str(home))
        with Progress().edit() as state:
            state.folder = str(home / "files")
        yield home / "files"


@contextmanager
def running(
    lines: Mapping[str, Pipeline], limits: Limits | None = None, hosts: tuple[str, ...] = (), *, runs_code: bool = False
) -> Iterator[tuple[Place, Api]]:
    """A real server on a free port of loopback."""
    api = Api(lines, limits or Limits(), runs_code=runs_code)
    listening = threading.Event()
    server = Server(Guard(api.app, token=TOKEN, hosts=hosts), listening.set)
    listener = bind("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    assert listening.wait(PATIENCE)
    try:
        yield Place(port), api
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()
        assert api.close(PATIENCE)


@contextmanager
def process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Place, dict[str, Any]]]:
    """`inlayer serve --json` as a user starts it; stopped at the end, if it still runs."""
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
            yield program, Place(facts["port"], facts["token"]), facts
        finally:
            if program.poll() is None:
                program.kill()
