"""The server itself: an open port until Ctrl-C.

lines -> [serve] -> guard -> api
- uvicorn with its h11 protocol, made bounded: so many connections, so long for a request's head, so long for an answer
  to leave. uvicorn alone waits for ever on one that sends a byte now and then, or never reads
- stopping does not wait: connections are cut, threads are left behind
- nothing is logged but what went wrong inside: a line per request would write the token down
Checked as a process of its own, signals and slow clients included, in tests/web/test_server.py.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType

import h11
import torch
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from inlayer.errors import InputError
from inlayer.paths import quoted
from inlayer.trace import Pipeline
from inlayer.web.api import Api
from inlayer.web.guard import HEADERS, Guard, error_body
from inlayer.web.schemas import Limits
from inlayer.web.twins import twins

__all__ = ["Address", "Server", "bind", "serve"]

MAX_CONNECTIONS = 512
HEAD_SECONDS = 10.0  # from the connection to the end of the first request's head
IDLE_SECONDS = 60.0  # from an answer to the end of the next request's head, the answer's way out included
REQUEST_SECONDS = 60.0  # from there to the answer
STOP_SECONDS = 0.5  # for threads to end by themselves


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server answers, and the token it wants to see."""

    host: str
    port: int
    token: str
    fragment: str
    models: list[str]

    @property
    def is_loopback(self) -> bool:
        """Can nobody but this machine reach it?"""
        return is_loopback(self.host)

    @property
    def url(self) -> str:
        """The page, ready to be opened."""
        fragment = f"#{self.fragment}" if self.fragment else ""
        return f"http://{_in_url(self.host)}:{self.port}/?token={self.token}{fragment}"


def serve(
    lines: Mapping[str, Pipeline],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    fragment: str = "",
    announce: Callable[[Address], None] | None = None,
) -> None:
    """Serve these models by name until Ctrl-C, which is raised as KeyboardInterrupt when all is closed.

    Port 0 is any free one. `announce` is called once the server listens; by default it prints the address, token and
    fragment included, as one line on stdout.
    """
    token = secrets.token_urlsafe(32)
    hosts = () if _is_address(host) else (host,)
    api = Api(lines, Limits(), runs_code=is_loopback(host))
    app = Guard(api.app, token=token, hosts=hosts)
    with bind(host, port) as alone:  # an error where somebody listens there; the twins' sockets would share it
        bound: int = alone.getsockname()[1]
    listener = bind(host, bound, shared=True)
    address = Address(host=host, port=bound, token=token, fragment=fragment, models=list(lines))
    server = Server(app, lambda: (announce or _print)(address))

    def serve_too(stop: int) -> None:
        listener.close()
        torch.set_num_threads(1)  # the threads torch had are not forked, and it would wait for them
        # When the first process ends, so does this one, at once: its connections are cut with the others.
        twin = Server(app, lambda: asyncio.get_running_loop().add_reader(stop, os._exit, 0))
        twin.run(sockets=[bind(host, bound, shared=True)])

    try:
        with twins(serve_too):
            server.run(sockets=[listener])
    finally:
        listener.close()
        api.close(STOP_SECONDS)
    if server.stopped_by == signal.SIGINT:
        raise KeyboardInterrupt


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket at that address, not yet listening; `shared` with others that say so too."""
    if not host:  # to some systems it means every address there is
        raise InputError("host is empty; this machine alone is 127.0.0.1")
    if not 0 <= port <= 65_535:  # the system would take it modulo 65,536
        raise InputError(f"port {port} is outside 0..65535; 0 is any free one")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError, OverflowError):
        raise InputError(f"host {quoted(host)} is no address of this machine") from None
    if sys.platform != "win32":  # a port that was in use a moment ago is free; there it would be shared instead
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared and hasattr(socket, "SO_REUSEPORT"):
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        made.bind(address)
    except (OSError, OverflowError) as error:
        made.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{host} port {port}: {reason}; give another port, or 0 for any free one") from None
    return made


class Server(uvicorn.Server):
    """uvicorn's, with bounded connections and an end that waits for nobody."""

    def __init__(self, app: Guard, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=BoundedProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                workers=1,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=30,
            )
        )
        self.announce = announce
        self.stopped_by: int | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        running = list(self.server_state.tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=STOP_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.stopped_by = sig
        super().handle_exit(sig, frame)


class BoundedProtocol(H11Protocol):
    """One connection, cut off when it takes longer than anybody needs."""

    _end: asyncio.TimerHandle | None = None
    _timed: object = None  # the request that the clock runs for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._allow(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete and self._timed is not self.cycle:
            self._timed = self.cycle
            self._allow(REQUEST_SECONDS)

    def on_response_complete(self) -> None:
        self._allow(IDLE_SECONDS)
        super().on_response_complete()

    def _allow(self, seconds: float) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = self.loop.call_later(seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all gets an error of our form; the middle of an answer is no place for another."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = error_body(f"{msg} Is this HTTP/1.1, and its head not too large?")
            headers = [
                ("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close"),
                *HEADERS.items(),
            ]  # fmt: skip
            for event in (h11.Response(status_code=400, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def _print(address: Address) -> None:
    sys.stdout.write(address.url + "\n")
    sys.stdout.flush()


def is_loopback(host: str) -> bool:
    """Can nobody but this machine reach a server that listens there?"""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _in_url(host: str) -> str:
    """A host as an address bar takes it: what listens everywhere is reached here by loopback."""
    if not _is_address(host):
        return host
    address = ipaddress.ip_address(host)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return host if address.version == 4 else f"[{host}]"
