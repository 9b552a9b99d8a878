"""The fork server: a process that has imported torch and forks a runner for each graded file.

session -> [fork server] -> runner
- it is started fresh and shares no memory with the grader, so a runner has no data of the grader
- importing torch takes seconds, a fork milliseconds, which makes `watch` and batch grading fast
- it runs no learner code itself and exits when the grader closes its end of the socket
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
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from inlayer.errors import InputError
from inlayer.learn.sandbox.limits import GradingLimits

READY = b"ready"
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class ForkServer:
    """The grader's handle on the fork server; `fork` returns a socket to a new process and its pid."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # -I: a torch.py in the current folder is not imported; sys.path is the grader's.
        start = f"import sys; sys.path[:] = {sys.path!r}; from inlayer.learn.sandbox.fork_server import main; main()"
        # Only harmless variables: the environment may contain secrets.
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", start, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # Ctrl-C is for the grader
            )
        self.socket, self.lock, self.owner = ours, threading.Lock(), os.getpid()
        if ours.recv(len(READY)) != READY:
            raise RuntimeError("the grader's fork server did not start; see its output above")

    def fork(self, output: int, *, scratch: Path, limits: GradingLimits) -> tuple[socket.socket, int]:
        """Fork a runner that prints to the file descriptor `output` and leads its own process group."""
        ours, theirs = socket.socketpair()
        request = json.dumps({"scratch": str(scratch), "limits": asdict(limits)}).encode()
        with theirs, self.lock:
            socket.send_fds(self.socket, [request], [theirs.fileno(), output])
            pid = int.from_bytes(self.socket.recv(8), "little")
        if not pid:
            raise RuntimeError("the grader's fork server exited unexpectedly")
        return ours, pid

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
    """Kill a process and its group, if they still exist."""
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
    alive: set[int] = set()
    while True:
        request, handles, _, _ = socket.recv_fds(control, 65_536, 2)
        alive = {pid for pid in alive if os.waitpid(pid, os.WNOHANG) == (0, 0)}
        if not request:  # the grader is gone
            for pid in alive:
                kill_group(pid)
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            control.close()
            channel, output = handles
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            received = json.loads(request)
            run(socket.socket(fileno=channel), received["scratch"], GradingLimits(**received["limits"]))
        with suppress(OSError):  # the child did it first, or is gone
            os.setpgid(pid, pid)
        for handle in handles:
            os.close(handle)
        alive.add(pid)
        control.sendall(pid.to_bytes(8, "little"))
