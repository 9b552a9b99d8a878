"""Runs `inlayer train` in separate processes without importing torch each time.

A server process imports everything and forks for each command, with the arguments, exit code and standard error of
`python -m inlayer`. To be independent of machine load, a command can kill itself right before the n-th change on disk
in a folder, or send itself a signal after a training step.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "shutil.rmtree"}


class Launcher:
    """Call it with the arguments of a command; returns exit code (negative: killed by that signal) and stderr."""

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
        signal_at: tuple[int, int] | None = None,
    ) -> tuple[int, str]:
        """Run a command; `signal_at` is a step (0: before the first one) and the signal to send after it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": [str(argument) for argument in arguments], "report": report, "kill_at": kill_at}
        request |= {
            "below": None if below is None else os.fspath(below),
            "file_limit": file_limit,
            "signal_at": signal_at,
        }
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        done = json.loads(self._process.stdout.readline())
        return done["code"], done["err"]

    def close(self) -> None:
        """Stop the server process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def kill_before_change(number: int, below: str) -> None:
    """Count changes in a folder, and kill this process right before the n-th."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        changes = event in CHANGES or (event == "open" and len(arguments) > 2 and bool(arguments[2] & 3))
        if changes and isinstance(arguments[0], (str, os.PathLike)) and os.fspath(arguments[0]).startswith(below):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def signal_after_step(step: int, number: int) -> None:
    """Send this process a signal after a training step, or before the first one if `step` is 0."""
    from inlayer.training.resumable_run import Run
    from inlayer.training.trainer import Trainer

    prepare, take_step = Run.prepare, Trainer.take_step

    def prepare_then_signal(self: Any, context: Any) -> Any:
        os.kill(os.getpid(), number)
        return prepare(self, context)

    def step_then_signal(self: Any, windows: Any) -> Any:
        line = take_step(self, windows)
        if line["step"] == step:
            os.kill(os.getpid(), number)
        return line

    if step == 0:
        Run.prepare = prepare_then_signal  # type: ignore[method-assign]
    else:
        Trainer.take_step = step_then_signal  # type: ignore[method-assign]


def run(request: dict[str, Any]) -> None:
    """Run the command, in the fork."""
    import resource

    from inlayer.training import train

    if request["kill_at"] is not None:
        kill_before_change(request["kill_at"], request["below"])
    if request["signal_at"] is not None:
        signal_after_step(*request["signal_at"])
    if request["file_limit"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"], request["file_limit"]))
    if not request["report"]:  # it takes longer than the steps of a test
        train.make_report = lambda _: None  # type: ignore[assignment,return-value]
    sys.argv = ["inlayer", *request["arguments"]]
    from inlayer.__main__ import main

    main()


def wait_for_commands() -> None:
    """Fork for every line of stdin, and write its result to stdout."""
    for name in ("inlayer.cli", "inlayer.cli.train_progress", "inlayer.training.train", "torch._dynamo"):
        import_module(name)  # the last one is slow, and needed by optimizers

    results = os.fdopen(os.dup(1), "w")
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
            os._exit(code if isinstance(code, int) else 0)  # without cleaning up torch, which takes a second
        os.close(write)
        with os.fdopen(read, errors="replace") as output:
            err = output.read()
        _, status = os.waitpid(process_id, 0)
        results.write(json.dumps({"code": os.waitstatus_to_exitcode(status), "err": err}) + "\n")
        results.flush()


if __name__ == "__main__":
    wait_for_commands()
