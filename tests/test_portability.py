"""A system without POSIX: everything imports, files are read and written, and grading says what it needs.

The modules and functions that Windows lacks are hidden in a new process; this is not Windows, but finds most of it.
"""

import os
import subprocess
import sys

import pytest

HIDE = """
import os, signal, sys
import torch
for name in ("fcntl", "resource", "termios", "tty", "pwd", "grp"):
    sys.modules[name] = None
for name in (
    "fork", "forkpty", "preadv", "pread", "readv", "killpg", "setsid", "setpgid", "sched_getaffinity", "O_CLOEXEC",
    "O_NONBLOCK", "O_NOFOLLOW", "O_DIRECTORY", "O_PATH", "WNOHANG", "waitpid",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM"):
    delattr(signal, name)
"""
IMPORT_ALL = """
import importlib, pkgutil, inlayer
OTHERS = (".__main__", ".sklearn", ".datasets", ".sentence_transformers")  # these import libraries that need POSIX here
for module in pkgutil.walk_packages(inlayer.__path__, "inlayer."):
    if ".content." not in module.name and not module.name.endswith(OTHERS):
        importlib.import_module(module.name)
"""
READ_AND_WRITE = """
from pathlib import Path
import numpy as np, inlayer
from inlayer.files import locked, write_atomic, write_output
from inlayer.inspection import inspect
model = inlayer.load("default")
rows = model.table.rows([5, 6, 0, 6])
assert np.array_equal(rows, np.asarray(model.table.weight)[[5, 6, 0, 6]])
assert model.tokenizer.decode(model.tokenizer.encode("I love dogs")) == "I love dogs"
assert inspect("default").table.rows == 6144
write_atomic(Path("a"), b"one")
write_output(Path("b"), b"two")
assert Path("a").read_bytes() + Path("b").read_bytes() == b"onetwo"
with locked(Path("lock"), "busy"):
    pass
"""
GRADE = """
from inlayer.errors import InputError
from inlayer.learn.sandbox.fork_server import fork_server
from inlayer.learn.task_files import read_source_file
from pathlib import Path
Path("task.py").write_text("x = 1")
assert read_source_file("task.py", follow_links=False)
try:
    fork_server()
except InputError as error:
    assert "needs Linux or macOS; on Windows, use WSL" in str(error)
else:
    raise AssertionError("no error")
"""


@pytest.mark.slow
@pytest.mark.parametrize("script", [IMPORT_ALL, READ_AND_WRITE, GRADE], ids=["imports", "files", "grading"])
def test_without_posix(tmp_path, script):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", HIDE + script]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
