"""The kernel restricts code that disables the audit hook: no solutions, no changed files, no processes, no signals."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

import pytest

import inlayer
from inlayer.learn.grader import grade
from inlayer.learn.sandbox.restrict import ARCHITECTURES, CREATE_RULESET, GradingLimits
from tests.learn.toy import SOLUTION, toy

pytestmark = pytest.mark.slow

LANDLOCK = sys.platform == "linux" and ctypes.CDLL(None).syscall(CREATE_RULESET, None, 0, 1) >= 6
if not (LANDLOCK and platform.machine() in ARCHITECTURES):
    pytest.skip("this kernel has no Landlock of version 6, or no seccomp for this machine", allow_module_level=True)

# Finds the hook's object on the stack and silences it: from here on, Python refuses nothing.
SILENCED = (
    "import os, sys, time, signal\nframe = sys._getframe()\nwhile frame:\n    runner = frame.f_locals.get('self')\n"
    "    if type(runner).__name__ == 'Runner':\n        runner.on_refusal = lambda what: None\n        break\n    frame = frame.f_back\n"
    "assert frame\n"
)
LEARN = Path(inlayer.__file__).parent / "learn"

REFUSED = {
    "reading a solution": "open(LEARN + '/content/forward/gather/solution.py').read()",
    "importing a solution": "import inlayer.learn.content.forward.gather.solution",
    "reading a solution by a folder": "os.open('learn/session.py', os.O_RDONLY, dir_fd=os.open(LEARN + '/..', os.O_RDONLY))",
    "reading a solution by a library": "import readline; readline.read_history_file(LEARN + '/session.py')",
    "reading a solution by a link": "os.symlink(LEARN, 'link'); open('link/session.py').read()",
    "writing elsewhere": "open(PLACE + '/new', 'w')",
    "changing a file": "open(PLACE + '/kept', 'r+')",
    "emptying a file": "os.truncate(PLACE + '/kept', 0)",
    "removing a file": "os.remove(PLACE + '/kept')",
    "moving a file away": "os.rename(PLACE + '/kept', 'mine')",
    "moving a file out": "open('mine', 'w').close(); os.rename('mine', PLACE + '/new')",
    "writing by a library": (
        "import torch\nfrom safetensors.torch import save_file\nsave_file({'a': torch.ones(1)}, PLACE + '/new')"
    ),
    "a fork": "os.fork()",
    "a program": "import subprocess; subprocess.run(['true'])",
    "a program, in a roundabout way": (
        "from multiprocessing.util import spawnv_passfds; spawnv_passfds(b'/bin/true', [b'true'], [0])"
    ),
    "a signal": "os.kill(os.getppid(), signal.SIGSTOP)",
    "a signal by a handle": "signal.pidfd_send_signal(os.pidfd_open(os.getppid()), signal.SIGSTOP)",
    "another group": "os.setpgid(0, os.getppid())",
    "a session": "os.setsid()",
    "the network": "import socket; socket.socket().bind(('127.0.0.1', 0))",
    "the fork server's memory": "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)",
    "the grader's environment": "open(f'/proc/{GRADER}/environ', 'rb').read()",
    "the grader's environment by a library": "import readline; readline.read_history_file(f'/proc/{GRADER}/environ')",
}


@pytest.mark.parametrize("name", REFUSED)
def test_kernel_refuses(name: str, tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("all of it")
    source = f"{SILENCED}LEARN, PLACE, GRADER = {(str(LEARN), str(tmp_path), os.getpid())!r}\n{REFUSED[name]}\nprint('done')\n"
    verdict = grade(toy(), source + SOLUTION, limits=GradingLimits(seconds=10.0))
    assert verdict.failure is not None, verdict.printed
    assert verdict.failure.rule == "raises", verdict.failure
    assert "done" not in verdict.printed
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert (tmp_path / "kept").read_text() == "all of it"
    assert grade(toy(), SOLUTION).passed


def test_restrictions_allow_what_tasks_need() -> None:
    source = SILENCED + (
        "import threading, tempfile, glob, json, numpy, torch, inlayer, pathlib, shutil\n"
        "thread = threading.Thread(target=print, args=('threaded',)); thread.start(); thread.join()\n"
        "with tempfile.NamedTemporaryFile() as file: file.write(b'1')\n"
        "os.mkdir('a'); pathlib.Path('a/b').write_text('x'); shutil.rmtree('a')\n"
        "torch.save(torch.ones(2), 'saved.pt'); torch.load('saved.pt')\n"
        "inlayer.load('default').embeddings\nimport inlayer.training, inlayer.tokenizers, email, sqlite3, decimal\n"
        "open('/dev/null', 'w').write('x')\nassert os.listdir('/')\n"
    )
    verdict = grade(toy(forbidden=()), source + SOLUTION)
    assert verdict.passed, verdict.failure
    assert "threaded" in verdict.printed
