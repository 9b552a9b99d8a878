"""`inlayer train` as processes of their own, without the seconds that each would need to import torch.

One process imports everything and waits; every command is a fork of it, with the arguments, the exit code and the
standard error that `python -m inlayer` would have. It can be told to kill itself, by SIGKILL, right before the n-th
change of something on disk below a folder.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}


class Launcher:
    """Call it with the arguments of a command: exit code (negative: killed by that signal) and standard error."""

    def __init__(self) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.training.launcher"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env, cwd=Path(__file__).parents[2],
        )  # fmt: skip

    def __call__(
        self,
        *arguments: object,
        report: bool = False,
        kill_at: int | None = None,
        below: Path | None = None,
        file_limit: int | None = None,
        meanwhile: Callable[[int], None] | None = None,
    ) -> tuple[int, str]:
        """`meanwhile` is called with the process's id while it runs."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        told = {"arguments": [str(one) for one in arguments], "report": report, "kill_at": kill_at}
        told |= {"below": None if below is None else os.fspath(below), "file_limit": file_limit}
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        process_id = int(self._process.stdout.readline())
        if meanwhile is not None:
            meanwhile(process_id)
        done = json.loads(self._process.stdout.readline())
        return done["code"], done["err"]

    def close(self) -> None:
        """The end of the one that waits."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def kill_before_change(number: int, below: str) -> None:
    """Count what is about to change something below a folder; at the n-th, end as by kill -9."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        changes = event in CHANGES or (event == "open" and len(arguments) > 2 and bool(arguments[2] & 3))
        if changes and isinstance(arguments[0], (str, os.PathLike)) and os.fspath(arguments[0]).startswith(below):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def run(told: dict[str, Any]) -> None:
    """In the fork: the command, as the real one."""
    import resource

    from inlayer.cli import train

    if told["kill_at"] is not None:
        kill_before_change(told["kill_at"], told["below"])
    if told["file_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (told["file_limit"], told["file_limit"]))
    if not told["report"]:  # which takes longer than all steps of a test
        train.finish = lambda *_, **__: None
    sys.argv = ["inlayer", *told["arguments"]]
    from inlayer.__main__ import main

    main()


def wait_for_commands() -> None:
    """Fork for every line on standard input; its process id, and then how it ended, on standard output."""
    for name in (
        "inlayer.cli",
        "inlayer.training.run",
        "torch._dynamo",
    ):  # the last: slow, an optimizer needs it
        import_module(name)

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        read, write = os.pipe()
        process_id = os.fork()
        if process_id == 0:
            os.dup2(write, 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.closerange(3, write + 1)
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            code: object = 0
            try:
                run(json.loads(line))
            except SystemExit as ended:
                code = ended.code
            except BaseException:
                traceback.print_exc()
                code = 1
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 0)  # at once: taking torch apart takes a second
        os.close(write)
        answers.write(f"{process_id}\n")
        answers.flush()
        with os.fdopen(read, errors="replace") as said:
            err = said.read()
        _, status = os.waitpid(process_id, 0)
        answers.write(json.dumps({"code": os.waitstatus_to_exitcode(status), "err": err}) + "\n")
        answers.flush()


if __name__ == "__main__":
    wait_for_commands()
