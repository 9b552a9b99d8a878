"""Misbehaving code fails by the right rule, and the next check works as usual."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inlayer.learn.grader import Verdict, grade
from inlayer.learn.sandbox.fork_server import GraderError, fork_server
from inlayer.learn.sandbox.restrict import GradingLimits
from inlayer.learn.session import GradingSession
from tests.learn.toy import SOLUTION, toy, values

pytestmark = pytest.mark.slow

QUICK = GradingLimits(seconds=2.0, wall_seconds=60.0, memory=512 << 20, output=100_000, threads=2)
PATIENT = replace(QUICK, seconds=60.0, wall_seconds=600.0)  # where another rule must apply, even on a busy machine
BODY = "def add(table, ids):\n    "


def run(source: str, limits: GradingLimits = PATIENT) -> Verdict:
    task = toy(()) if "threading" in source else toy()  # threads are refused where anything is forbidden
    return grade(task, source, seed=3, limits=limits)


CASES = {  # source, rule, words of the message
    "an endless loop": (BODY + "while True: pass\n", "timeout", "longer than 2 seconds of CPU time"),
    "an endless loop at import": ("while True: pass\n", "timeout", "longer than 2 seconds"),
    "sleeping": ("import time\ntime.sleep(100)\n", "timeout", "longer than 3 seconds and was stopped; does it wait"),
    "catching everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass\n", "timeout", "longer than"
    ),
    "sys.exit": ("import sys\nsys.exit(0)\n", "ended", "SystemExit"),
    "sys.exit in the call": (BODY + "raise SystemExit('all 6 of 6 checks')\n", "ended", "SystemExit"),
    "os._exit": ("import os\nos._exit(0)\n", "refused", "end its process"),
    "os.abort": ("import os\nos.abort()\n", "ended", "ended unexpectedly"),
    "giant output": (BODY + "while True: print('x' * 1000)\n", "output", "more than 100,000 bytes"),
    "giant output to stderr": ("import sys\nwhile True: sys.stderr.write('x' * 1000)\n", "output", "printed more"),
    "giant output past Python": ("import os\nwhile True: os.write(1, b'x' * 1000)\n", "output", "printed more"),
    "too much memory": ("x = [0] * 10**10\n", "memory", "0.5 GiB"),
    "too much memory in torch": ("import torch\nx = torch.ones(10**9)\n", "memory", "0.5 GiB"),
    "memory, little by little": ("x = []\nwhile True: x.append(bytearray(10**6))\n", "memory", "0.5 GiB"),
    "a fork bomb": ("import os\nwhile True: os.fork()\n", "refused", "start another process"),
    "a fork bomb that catches": (
        "import os\nwhile True:\n    try: os.fork()\n    except BaseException: pass\n", "refused", "another process"
    ),
    "subprocess": ("import subprocess\nsubprocess.run(['true'])\n", "refused", "start another"),
    "multiprocessing": (
        "import multiprocessing as m\nm.get_context('fork').Process(target=print).start()\n", "refused", "another process"
    ),
    "os.system": ("import os\nos.system('true')\n", "refused", "another program"),
    "os.execv": ("import os\nos.execv('/bin/true', ['true'])\n", "refused", "another program"),
    "many threads": (
        "import threading, time\nfor _ in range(99): threading.Thread(target=time.sleep, args=(9,)).start()\n",
        "refused", "more than 2 threads",
    ),
    "killing the grader": ("import os\nos.kill(os.getppid(), 9)\n", "refused", "send a signal"),
    "the network": ("import socket\nsocket.create_connection(('127.0.0.1', 9))\n", "refused", "network"),
    "files deleted": ("import os\nos.remove(__import__('torch').__file__)\n", "refused", "outside"),
    "folders deleted": ("import os, shutil\nshutil.rmtree('/home')\n", "refused", "outside its scratch"),
    "a database elsewhere": ("import sqlite3\nsqlite3.connect('/tmp/inlayer-not-here')\n", "refused", "outside its scratch"),
    "a file written elsewhere": ("open('/tmp/inlayer-not-here', 'w')\n", "refused", "outside its scratch folder"),
    "a file written elsewhere, by number": (
        "import os\nos.open('../inlayer-not-here', os.O_CREAT | os.O_WRONLY)\n", "refused", "outside its scratch folder"
    ),
    "the grader imported": ("import inlayer.learn.grader\n", "refused", "import the grader"),
    "the grader imported, errors caught": (
        "import importlib\ntry: importlib.import_module('inlayer.learn.assertions')\nexcept BaseException: pass\n" + SOLUTION,
        "refused", "the",
    ),
    "the grader patched": (
        "import sys\nfor module in list(sys.modules.values()):\n    for name in ('check_values', 'check_shape', 'grade'):\n"
        "        if type(module) is type(sys): vars(module)[name] = lambda *a, **k: None\ndef add(table, ids):\n    return table[0]\n",
        "values", "differ",
    ),
    "torch patched": (
        "import torch\ntorch.allclose = torch.equal = lambda *a, **k: True\ntorch.Tensor.__eq__ = lambda *a: True\n"
        "def add(table, ids):\n    return table[0]\n",
        "values", "differ",
    ),
    "solutions read": (
        "import inlayer, pathlib\nfor p in (pathlib.Path(inlayer.__file__).parent / 'learn').rglob('solution.py'):\n"
        "    exec(p.read_text())\n(pathlib.Path(inlayer.__file__).parent / 'learn' / 'session.py').read_text()\n",
        "refused", "read files of the course",
    ),
    "solutions read past Python": (
        "import inlayer, torch\nprint(torch.from_file(inlayer.__file__.replace('__init__', 'learn/session'), size=9, dtype=torch.uint8))\n",
        "refused", "without Python's file API",
    ),
    "expected values searched in memory": (
        "import gc\ndef add(table, ids):\n    return [o for o in gc.get_objects() if getattr(o, 'shape', 0) == 3][0]\n",
        "refused", "search the process's memory",
    ),
    "expected values searched in frames": (
        "import sys\ndef add(table, ids):\n    frame = sys._getframe()\n    while frame:\n        for v in list(frame.f_locals.values()):"
        "\n            if getattr(v, 'shape', None) == (table.shape[1],): return v\n        frame = frame.f_back\n"
        "    return table[0]\n",
        "values", "differ",
    ),
    "the grader's memory read": ("import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')\n", "refused", "other processes"),
    "half a message": (
        "import os, struct, time\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('<Q', 1000))\n"
        "    except OSError: pass\ntime.sleep(1000)\n",
        "timeout", "longer than 3 seconds",
    ),
    "a message too long": (
        "import os, struct, time\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('<Q', 2**60))\n"
        "    except OSError: pass\ntime.sleep(1000)\n",
        "refused", "channel",
    ),
    "a folder opened": ("import os\nos.open('/', os.O_RDONLY)\n", "refused", "open a folder"),
    "junk in the channel": (
        "import os, struct\nfor fd in range(3, 64):\n    try: os.write(fd, struct.pack('<Q', 5) + b'junk!')\n"
        "    except OSError: pass\n",
        "refused", "channel",
    ),
    "the channel closed": ("import os\nos.closerange(0, 256)\n" + SOLUTION, "ended", "ended unexpectedly"),
    "a crash": ("import ctypes\nctypes.string_at(0)\n", "ended", "crash"),
    "endless recursion": (BODY + "return add(table, ids)\n", "raises", "RecursionError"),
    "an error without a message": (
        "class E(Exception):\n    def __str__(self): raise E\nraise E\n", "raises", "cannot be shown"
    ),
    "a tensor type with its own equality": (
        "import torch\nclass Same(torch.Tensor):\n    def __eq__(self, o): return True\ndef add(table, ids):\n"
        "    return table[0].as_subclass(Same)\n",
        "values", "differ",
    ),
    "endless nesting": (BODY + "x = []\n    for _ in range(10**5): x = [x]\n    return x\n", "not-a-tensor", "list"),
    "a circular list": (BODY + "x = []\n    x.append(x)\n    return x\n", "not-a-tensor", "list"),
    "reading stdin": ("input()\n", "raises", "EOFError"),
    "not Python": ("def add(:\n", "syntax", "line 1"),
    "a line without its colon": (SOLUTION.replace(":", ""), "syntax", "line 1: expected ':'\n    def add(table, ids)"),
    "a NUL": ("a\0b", "syntax", "null bytes"),
    "a lone surrogate": ("x = '\ud800'\n", "syntax", "surrogates"),
    "endless brackets": ("(" * 5000, "syntax", ""),
    "endless minus signs": ("x = " + "-" * 100_000 + "1\n", "syntax", ""),
    "an empty file": ("", "missing", "must define add(table, ids)"),
    "a name that is not a function": ("add = 3\n", "missing", "of type int"),
    "an answer too large to send": (BODY + "return 'x' * (300 << 20)\n", "", ""),
    "a tensor too large to send": (BODY + "return table.new_zeros(70_000_000)\n", "too-large", "its tensors take 280,000,"),
    "a view too large to send": (BODY + "return table.new_zeros(1).expand(10**10)\n", "too-large", "its tensors take"),
    "too many tensors to send": (BODY + "return [table[0, 0]] * 90_000\n", "too-large", "90,002 tensors"),
    "a list too large to send": (BODY + "return [None] * 10**6\n", "too-large", "returned too much"),
    "a forged answer of empty objects": (
        "import os, struct\ntree = b'[' + b'{},' * 10**7 + b'{}]'\nmessage = struct.pack('<Q', len(tree)) + tree + bytes(10)\n"
        "message = struct.pack('<Q', len(message)) + message\nfor fd in range(3, 64):\n    try:\n"
        "        while message: message = message[os.write(fd, message):]\n    except OSError: pass\n",
        "refused", "channel",
    ),
    "builtins replaced": ("import builtins\nbuiltins.len = builtins.isinstance = None\n", "ended", ""),
    "print replaced": (
        "import sys\nsys.stdout = sys.stderr = None\ndef add(table, ids):\n    return 1\n",
        "not-a-tensor", "int",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_misbehaving_code_fails_by_its_rule_and_the_next_check_works(name: str) -> None:
    source, rule, words = CASES[name]
    quick = replace(QUICK, wall_seconds=3.0) if "sleep(" in source else QUICK
    verdict = run(source, quick if rule == "timeout" else PATIENT)
    assert verdict.failure is not None, verdict
    assert not rule or verdict.failure.rule == rule, verdict.failure
    assert words in verdict.failure.message
    assert "not run" in {result.state for result in verdict.results}
    assert run(SOLUTION).passed


@pytest.mark.parametrize("is_handled", [False, True])
def test_the_kernels_cpu_limit_is_a_timeout(is_handled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, the kernel may end an endless loop before the grader sees that it is too slow."""
    monkeypatch.setattr("inlayer.learn.session.cpu_seconds", lambda _: 0.0)
    ignoring = "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n" if is_handled else ""
    failure = run(ignoring + BODY + "while True: pass\n", QUICK).failure
    assert failure is not None
    assert (failure.rule, "longer than 2 seconds" in failure.message) == ("timeout", True), failure


def test_a_process_killed_early_is_no_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inlayer.learn.session.cpu_seconds", lambda pid: os.kill(pid, signal.SIGKILL) or 0.0)
    failure = run("import time\ntime.sleep(100)\n").failure
    assert failure is not None
    assert failure.rule == "ended"


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pid = fork_server().process.pid
    run("while True: pass\n", QUICK)
    run("import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\n" + SOLUTION)
    assert not list(tmp_path.iterdir())
    assert fork_server().process.pid == pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    if children.exists():
        for _ in range(2_400):  # they end on their own, however busy the machine is
            alive = [child for child in children.read_text().split() if state(child) not in {"Z", ""}]
            if not alive:
                break
            time.sleep(0.05)
        assert not alive


def test_nothing_is_left_behind_if_no_process_is_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(fork_server(), "_ask", lambda *_: b"")
    with pytest.raises(GraderError, match="ended unexpectedly"):
        run(SOLUTION)
    assert not list(tmp_path.iterdir())


def state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_a_killed_fork_server_is_replaced() -> None:
    assert run(SOLUTION).passed
    process = fork_server().process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert run(SOLUTION).passed


def test_an_interrupted_request_does_not_answer_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """After Ctrl-C, the answer to a request may still be in the socket."""
    server, connection = fork_server(), fork_server().socket

    class Interrupted:
        def recv(self, _: int) -> bytes:
            raise KeyboardInterrupt

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

    monkeypatch.setattr(server, "socket", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        run(SOLUTION)
    assert run(SOLUTION).passed
    assert fork_server() is not server


def test_runner_ends_with_a_killed_grader(tmp_path: Path) -> None:
    """The process ends even if the code only sleeps, so no CPU limit is reached."""
    mark = tmp_path / "pid"
    script = (
        "from tests.learn.toy import toy\nfrom inlayer.learn.grader import grade\nimport inlayer.learn.session as e, pathlib\n"
        "init = e.GradingSession.__init__\ndef recording(self, *a, **k):\n    init(self, *a, **k)\n"
        f"    pathlib.Path({str(mark)!r}).write_text(str(self.pid))\ne.GradingSession.__init__ = recording\n"
        "grade(toy(), 'import time\\ntime.sleep(1000)\\n', limits=e.GradingLimits(seconds=900, wall_seconds=900))\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=Path(__file__).parents[2]) as process:
        try:
            for _ in range(2_400):  # until the code sleeps, however busy the machine is
                if mark.exists() and (pid := mark.read_text()) and state(pid) == "S":
                    break
                time.sleep(0.05)
            assert state(pid) == "S"
        finally:
            process.kill()
    for _ in range(200):
        if state(pid) in {"Z", ""}:
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is still there")


def test_the_scratch_folder_is_usable() -> None:
    source = (
        "import os, pathlib, shutil\npathlib.Path('notes.txt').write_text('mine')\nos.mkdir('sub')\n"
        "pathlib.Path('sub/a').write_bytes(b'1')\nshutil.rmtree('sub')\nassert open('notes.txt').read() == 'mine'\n"
    )
    verdict = run(source + SOLUTION)
    assert verdict.passed, verdict.failure


def test_runner_sees_only_harmless_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INLAYER_SECRET", "hunter2")
    fork_server().close()  # the next server inherits this environment
    verdict = run(
        "import os, tempfile\nassert tempfile.gettempdir() == os.getcwd()\nprint(dict(os.environ))\n" + SOLUTION
    )
    assert verdict.passed, verdict.failure
    assert "PATH" in verdict.printed
    assert "hunter2" not in verdict.printed


def test_time_of_the_grader_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    task = toy()
    checks = sys.modules["inlayer.learn.content.toys.add.check"].__dict__

    def slow(session: GradingSession) -> None:
        time.sleep(3.5)
        values(session)

    monkeypatch.setitem(checks, "CHECKS", (slow, slow, slow))
    assert grade(task, SOLUTION, limits=GradingLimits(wall_seconds=10.0)).passed


def test_printed_output_is_captured() -> None:
    verdict = run("print('at the start')\n" + BODY + "print(ids.shape); return table[ids].sum(0)\n")
    assert verdict.passed
    assert verdict.printed.startswith("at the start\ntorch.Size([3])\n")


def test_common_libraries_can_be_used() -> None:
    source = "import numpy as np, inlayer, math, collections, torch.nn.functional as F\nnp.zeros(3)\ninlayer.Embeddings(4, 2)\n"
    verdict = run(source + SOLUTION)
    assert verdict.passed, verdict.failure


def test_values_are_random_and_repeatable_by_seed() -> None:
    """A hard-coded answer that was right once fails the next time."""
    source = BODY + "print(table.flatten().tolist(), ids.tolist()); return table[ids].sum(0)\n"
    first, second, again = (grade(toy(), source, seed=seed) for seed in (1, 2, 1))
    assert first.printed == again.printed != second.printed
    free, other = grade(toy(), source), grade(toy(), source)
    assert free.seed != other.seed
    assert free.printed != other.printed
