"""The server: worker processes on one port until Ctrl-C.

models -> [serve] -> guard -> app
- uvicorn supervises the workers, one per core; each opens the models separately, and all share one listening socket
- connections are limited in number, time, and bytes per turn (BoundedProtocol); uvicorn alone would wait forever for a
  slow client, and parse a quarter of a megabyte at once
- stopping takes about a second: connections are closed and running jobs are abandoned
- requests are not logged, because their URLs contain the token
Tested as a process, including signals and slow clients, in tests/web/test_server.py.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import multiprocessing
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING

import h11
import uvicorn
import uvicorn._subprocess
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from inlayer.errors import InputError
from inlayer.files import quote
from inlayer.threads import on_parent_exit
from inlayer.web.guard import HEADERS, GuardMiddleware, error_response

if TYPE_CHECKING:
    from inlayer.trace import Pipeline

MAX_WORKERS = 4
MAX_CONNECTIONS = 512  # limit per worker
BACKLOG = 2_048  # connections that wait to be accepted
HEAD_SECONDS = 10.0  # time between the connection and the end of the first request's headers
IDLE_SECONDS = 60.0  # time between a response and the end of the next request's headers
REQUEST_SECONDS = 60.0  # time between the headers and the response
READ_BYTES = 2**13  # per turn of the event loop; a client may send chunks of one byte, and h11 takes 5 µs for each
STOPPED = "the server's worker processes stopped; is there enough memory?"
START_SECONDS = 300.0  # until a worker must answer, on a busy machine

OpenPipelines = Callable[[], "Mapping[str, Pipeline]"]

PRELOADED = "inlayer.web.app"  # imports torch, which takes seconds, once for all workers


@dataclass(frozen=True, kw_only=True)
class Address:
    """The address where a server listens, and the token it requires.

    Args:
        host: Address it listens on.
        port: Port it listens on.
        token: The token that every request must present.
        fragment: Part of the page's address after "#".
        models: Names of the models.

    Example:
        >>> address = Address(
        ...     host="127.0.0.1", port=8000, token="secret", fragment="", models=["default"]
        ... )
        >>> address.url, address.is_loopback
        ('http://127.0.0.1:8000/?token=secret', True)
        >>> address.course_url
        'http://127.0.0.1:8000/learn?token=secret'
    """

    host: str
    port: int
    token: str
    fragment: str
    models: list[str]

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def url_host(self) -> str:
        """The host in `url`: for a server that listens on every address of this machine, the loopback address."""
        address = _address(self.host)
        if address is None or not address.is_unspecified:
            return self.host
        return "127.0.0.1" if address.version == 4 else "::1"

    @property
    def url(self) -> str:
        """The address of the page, including the token."""
        return self._url_of("/") + (f"#{self.fragment}" if self.fragment else "")

    @property
    def course_url(self) -> str:
        """The address of the course, including the token."""
        return self._url_of("/learn")

    def _url_of(self, path: str) -> str:
        host = f"[{self.url_host}]" if ":" in self.url_host else self.url_host
        return f"http://{host}:{self.port}{path}?token={self.token}"


def print_address(address: Address) -> None:
    sys.stdout.write(address.url + "\n")
    sys.stdout.flush()
    sys.stderr.write("press Ctrl-C to stop\n")


def worker_app(open_pipelines: OpenPipelines, token: str, host: str, api_key: str | None = None) -> GuardMiddleware:
    """Build the application inside a worker process."""
    on_parent_exit(partial(os._exit, 0))
    from inlayer.encoding import row_pooling
    from inlayer.web.app import make_app

    row_pooling.torch_process = os.getpid()  # the parent process imported torch, but did not compute with it
    hosts = () if _address(host) else (host,)
    app = make_app(open_pipelines(), token=token, hosts=hosts, allow_code_execution=is_loopback(host), api_key=api_key)
    gc.collect()
    gc.freeze()  # otherwise, every full collection visits torch and the models, blocking the event loop for 0.1 s
    return app


class Supervisor(Multiprocess):
    """uvicorn's supervisor, which also announces the server and remembers the signal that stopped it."""

    stopped_by: signal.Signals | None = None

    def __init__(self, config: uvicorn.Config, listener: socket.socket, ready: Callable[[], None]) -> None:
        super().__init__(config, [listener])
        self.listener, self.ready = listener, ready

    def init_processes(self) -> None:
        """Start the workers, and announce the server once every worker answers."""
        super().init_processes()
        self.ready()

    def wait_until_ready(self, worker: Process) -> bool:
        """Wait until a worker answers. Return False if the worker stopped or the server should stop."""
        while worker.process.is_alive() and not self.should_exit.is_set():
            is_ready = worker.wait_until_ready(1.0, self.should_exit)
            self.handle_signals()
            if is_ready:
                return True
        return False

    def keep_subprocess_alive(self) -> None:
        """Replace workers that died; each new worker resets the listen backlog to a smaller value (see make_config)."""
        super().keep_subprocess_alive()
        self.listener.listen(BACKLOG)

    def handle_int(self) -> None:
        self.stopped_by = signal.SIGINT
        super().handle_int()

    def handle_term(self) -> None:
        self.stopped_by = signal.SIGTERM
        super().handle_term()


def serve(
    open_pipelines: OpenPipelines,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    fragment: str = "",
    announce: Callable[[Address], None] = print_address,
    api_key: str | None = None,
) -> None:
    """Serve models until Ctrl-C, which is raised as KeyboardInterrupt once everything is closed.

    Args:
        open_pipelines: Returns the models by name. Called in every worker process, so it must be picklable:
            a function of a module, or a `functools.partial` of one.
        host: Address to listen on.
        port: Port to listen on; 0 is any free port.
        fragment: Part of the address after "#", which the page reads.
        announce: Called with the address once the server answers. By default it prints the address to stdout.
        api_key: A key that requests to /v1/ may present instead of the random token.

    Raises:
        KeyboardInterrupt: On Ctrl-C.
        InputError: If the address, the port, or the API key cannot be used, or the workers stopped.
        InlayerError: If a model cannot be opened.
    """
    if api_key is not None and not (api_key and api_key.isascii() and api_key.isprintable() and " " not in api_key):
        raise InputError("the API key must be printable ASCII without spaces, and not empty")
    token = secrets.token_urlsafe(32)
    listener = bind(host, port)
    uvicorn._subprocess.spawn = processes = start_fork_server()  # type: ignore[assignment]
    receiver, sender = processes.Pipe(duplex=False)
    open_and_report = partial(report_names, open_pipelines, sender)
    config = make_config(partial(worker_app, open_and_report, token, host, api_key), workers=_workers())

    def ready() -> None:
        # Wait for all workers: the first one would accept every connection made before the others listen.
        is_ready = all(map(supervisor.wait_until_ready, supervisor.processes))
        if supervisor.should_exit.is_set():
            return
        found = receiver.recv() if receiver.poll() else None
        if isinstance(found, Exception):
            raise found
        if found is None or not is_ready:
            raise InputError(STOPPED)
        listener.listen(BACKLOG)
        announce(Address(host=host, port=listener.getsockname()[1], token=token, fragment=fragment, models=found))

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    supervisor = Supervisor(config, listener, ready)
    try:
        supervisor.run()
    finally:
        supervisor.terminate_all()  # does nothing unless starting the workers failed
        supervisor.join_all()
        listener.close()
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if supervisor.stopped_by == signal.SIGINT:
        raise KeyboardInterrupt
    if supervisor.stopped_by == signal.SIGTERM:
        signal.raise_signal(signal.SIGTERM)
    raise InputError(STOPPED)


def report_names(open_pipelines: OpenPipelines, report: Connection) -> Mapping[str, Pipeline]:
    """Open the models in a worker, and send their names, or the error if a model cannot be opened."""
    try:
        pipelines = open_pipelines()
    except Exception as error:
        report.send(error)
        os._exit(1)
    report.send(list(pipelines))
    return pipelines


def start_fork_server() -> BaseContext:
    """Return the context that starts processes: forked from a process with torch loaded, if the system has fork."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver, resource_tracker

    multiprocessing.set_forkserver_preload([PRELOADED])
    resource_tracker.ensure_running()  # start it now; starting it later would unblock SIGINT
    # The server's processes inherit the signal mask, so Ctrl-C reaches only this process, once the mask is removed.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return multiprocessing.get_context("forkserver")


def make_config(app: Callable[[], GuardMiddleware], *, workers: int = 1) -> uvicorn.Config:
    """Configure uvicorn for an application factory."""
    return uvicorn.Config(
        app,
        factory=True,
        workers=workers,
        # asyncio also accepts this many connections at a time, so with a longer queue, the first worker to wake up
        # would accept them all. The supervisor lengthens the queue again.
        backlog=1 if workers > 1 else BACKLOG,
        loop="asyncio",
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(IDLE_SECONDS) + 1,  # BoundedProtocol closes idle connections before that
        timeout_graceful_shutdown=1,
        timeout_worker_healthcheck=int(START_SECONDS),
    )


def _workers() -> int:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return min(MAX_WORKERS, cores)


def bind(host: str, port: int) -> socket.socket:
    if not host:  # for an empty host, some systems listen on every address
        raise InputError("host is empty; use 127.0.0.1 for this machine only")
    if not 0 <= port <= 65_535:  # the system would reduce it modulo 65,536
        raise InputError(f"port {port} is outside 0..65535; 0 is any free port")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError):
        raise InputError(f"host {quote(host)} is not an address of this machine") from None
    dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
    try:
        return socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=dual_stack)
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        reason = "the port is already in use" if is_used else os.strerror(error.errno or 0)
        raise InputError(f"{host} port {port}: {reason}; use another port, or 0 for any free one") from None


class BoundedProtocol(H11Protocol):
    """One connection, which is closed if a client takes too long."""

    _timer: asyncio.TimerHandle | None = None
    _timed: object = None  # the request that the timer runs for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # an attribute of asyncio's sockets; 256 kB by default
            self._allow(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
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
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP with an error in our format, unless a response has already started."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = bytes(error_response(400, f"{msg} Send HTTP/1.1 with smaller headers.").body)
            headers = {"content-type": "application/json", "content-length": str(len(body)), "connection": "close"}
            response = h11.Response(status_code=400, headers=list({**headers, **HEADERS}.items()))
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on this host."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
