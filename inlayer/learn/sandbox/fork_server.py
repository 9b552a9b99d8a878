"""The fork_server: one process that has imported torch and waits; each learner's process is forked from it, at once.

grader -> [fork_server] -> run
- a process of its own from the start: it shares no memory with ours, so nothing of ours is in what it forks
- importing torch takes seconds, a fork milliseconds: watching a file and grading a class depend on it
- it runs no code of the learner's itself, and ends when the grader's end of its socket closes
Checked in tests/learn/test_misbehaving.py.
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
from pathlib import Path
from typing import NoReturn

__all__ = ["ForkServer", "end", "fork_server"]

STARTED = b"ready"
ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")


class ForkServer:
    """The grader's end: `fork` gives a channel to a new process, and its number."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        # -I: no folder we stand in can put another torch in the way. It finds what we find.
        start = f"import sys; sys.path[:] = {sys.path!r}; from inlayer.learn.sandbox.fork_server import main; main()"
        # Little of our environment: a teacher's may hold secrets.
        environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", start, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=environment,
                start_new_session=True,  # Ctrl-C is for us
            )
        self.socket, self.lock, self.owner = ours, threading.Lock(), os.getpid()
        if ours.recv(len(STARTED)) != STARTED:
            raise RuntimeError("the grader's helper process did not start; its own output says why")

    def fork(self, output: int, *, scratch: Path, memory: int, seconds: float) -> tuple[socket.socket, int]:
        """A process that writes what it prints to `output`; it is the head of its own group."""
        ours, theirs = socket.socketpair()
        asked = json.dumps({"scratch": str(scratch), "memory": memory, "seconds": seconds}).encode()
        with theirs, self.lock:
            socket.send_fds(self.socket, [asked], [theirs.fileno(), output])
            pid = int.from_bytes(self.socket.recv(8), "little")
        if not pid:
            raise RuntimeError("the grader's helper process ended")
        return ours, pid

    def close(self) -> None:
        self.socket.close()
        if self.owner == os.getpid():
            self.process.wait()


_fork_server: ForkServer | None = None
_lock = threading.Lock()


def fork_server() -> ForkServer:
    """The one of this process; made when it is first asked for."""
    global _fork_server  # noqa: PLW0603
    with _lock:
        if _fork_server is None or _fork_server.owner != os.getpid() or _fork_server.process.poll() is not None:
            _fork_server = ForkServer()
            atexit.register(_fork_server.close)
        return _fork_server


def end(pid: int) -> None:
    """End a process and its group; it may have left that, or be gone."""
    for kill in (os.kill, os.killpg):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def main() -> NoReturn:
    """The fork_server itself."""
    import torch

    import inlayer.embeddings  # noqa: F401  # what tasks may use, ready before the fork
    from inlayer.learn.sandbox.runner import run

    sys.dont_write_bytecode = True  # it would be the learner's code that writes
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.sendall(STARTED)
    alive: set[int] = set()
    while True:
        asked, handed, _, _ = socket.recv_fds(control, 65_536, 2)
        alive = {pid for pid in alive if os.waitpid(pid, os.WNOHANG) == (0, 0)}
        if not asked:  # the grader is gone, and with it the reason of all the others
            for pid in alive:
                end(pid)
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            control.close()
            channel, output = handed
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            run(socket.socket(fileno=channel), **json.loads(asked))
        with suppress(OSError):  # it did so itself, or is gone
            os.setpgid(pid, pid)
        for handle in handed:
            os.close(handle)
        alive.add(pid)
        control.sendall(pid.to_bytes(8, "little"))
