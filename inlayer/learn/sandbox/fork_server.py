"""The fork server: a process that has imported torch and forks a runner for each graded file.

session -> [fork server] -> runner
- it is a new process that shares no memory with the grader, so a runner has none of the grader's data
- importing torch takes seconds but a fork takes milliseconds, so `watch` and batch grading are fast
- it runs no learner code itself and exits when the grader closes its end of the socket
- it is the runners' parent, so it knows how each of them ended. Requests and answers are JSON
Tested in tests/learn/test_misbehaving.py.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

from inlayer.errors import InlayerError, InputError
from inlayer.files import printable
from inlayer.learn.sandbox.restrict import GradingLimits

READY = b"ready"
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
MAX_ANSWER = 4096  # bytes
MAX_REASON = 200  # characters


class GraderError(InlayerError, RuntimeError):
    """The grader itself cannot run code."""


class ForkServer:
    """The grader's handle on the fork server; `fork` returns a socket to a new process and its pid."""

    def __init__(self) -> None:
        parent_end, child_end = socket.socketpair()
        # -I: a torch.py in the current folder is not imported. sys.path is the grader's.
        start = f"import sys; sys.path[:] = {sys.path!r}; from inlayer.learn.sandbox.fork_server import main; main()"
        # Only harmless variables: the environment may contain secrets.
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.socket, self.lock, self.owner = parent_end, threading.Lock(), os.getpid()
        with child_end, tempfile.TemporaryFile() as errors:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-c", start, str(child_end.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=[child_end.fileno()],
                    env=environment,
                    start_new_session=True,  # Ctrl-C is for the grader only
                )
                child_end.close()  # otherwise, the grader would wait forever for a server that fails to start
                ready = parent_end.recv(len(READY)) == READY
            except OSError as error:
                parent_end.close()
                raise GraderError(f"the grader's process did not start: {error.strerror or error}") from None
            if not ready:
                self.close()
                errors.seek(0)
                raise GraderError(f"the grader's process did not start: {self._reason(errors.read())}")

    def _reason(self, errors: bytes) -> str:
        """Return the last line that a failed server printed, or else how it ended."""
        lines = errors.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return printable(last)[:MAX_REASON] or f"it ended with code {self.process.returncode}"

    def fork(self, output: int, *, scratch: Path, limits: GradingLimits) -> tuple[socket.socket, int]:
        """Fork a runner that prints to the file descriptor `output` and leads a new process group."""
        parent_end, child_end = socket.socketpair()
        try:
            with child_end:
                pid = self._request({"scratch": str(scratch), "limits": asdict(limits)}, [child_end.fileno(), output])
            if not pid:
                raise GraderError("the grader's process ended unexpectedly; try again")
        except BaseException:
            parent_end.close()
            raise
        return parent_end, pid

    def kill(self, pid: int) -> tuple[int, float]:
        """Kill a runner and its group. Return the signal that ended it (0: it had exited) and its CPU seconds."""
        kill_group(pid)
        number, seconds = self._request({"reap": pid}) or (0, 0.0)
        return number, seconds

    def _request(self, request: dict[str, Any], handles: Sequence[int] = ()) -> Any:
        """Send a request and return the answer, or None if the server is gone."""
        with self.lock, suppress(OSError, ValueError):
            try:
                socket.send_fds(self.socket, [json.dumps(request).encode()], handles)
                return json.loads(self.socket.recv(MAX_ANSWER))
            except KeyboardInterrupt:
                self.close()  # the next request would receive this answer
                raise
        return None

    def close(self) -> None:
        self.socket.close()
        if self.owner == os.getpid():
            self.process.wait()


_fork_server: ForkServer | None = None
_lock = threading.Lock()


def fork_server() -> ForkServer:
    """Return the fork server of this process, started on first use."""
    global _fork_server  # noqa: PLW0603
    if not hasattr(os, "fork"):
        raise InputError("grading runs code in a sandbox that needs Linux or macOS; on Windows, use WSL")
    with _lock:
        if _fork_server is None or _fork_server.owner != os.getpid() or _fork_server.process.poll() is not None:
            _fork_server = ForkServer()
            atexit.register(_fork_server.close)
        return _fork_server


def kill_group(pid: int) -> None:
    for kill in (os.kill, os.killpg):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def main() -> NoReturn:
    """Serve fork requests (runs in the fork server process)."""
    import torch

    import inlayer.embeddings  # noqa: F401  # tasks may use it; import it before forking
    from inlayer.learn.sandbox.runner import run

    sys.dont_write_bytecode = True  # runners must not write outside their scratch folder
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.sendall(READY)
    runners: set[int] = set()
    while True:
        message, handles, _, _ = socket.recv_fds(control, 65_536, 2)
        if not message:  # the grader is gone
            for pid in runners:
                kill_group(pid)
            os._exit(0)
        request = json.loads(message)
        if "reap" in request:
            pid, status, usage = os.wait4(request["reap"], 0)
            runners.remove(pid)
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            control.sendall(json.dumps([number, usage.ru_utime + usage.ru_stime]).encode())
            continue
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            control.close()
            channel, output = handles
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            run(socket.socket(fileno=channel), request["scratch"], GradingLimits(**request["limits"]))
        with suppress(OSError):  # the child has already done it, or is gone
            os.setpgid(pid, pid)
        for handle in handles:
            os.close(handle)
        runners.add(pid)
        control.sendall(json.dumps(pid).encode())
