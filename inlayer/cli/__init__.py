"""The command line: the door to the rooms. Nobody imports it.

- a bad input is one line on stderr and exit code 2, never a traceback; Ctrl-C is exit code 130 (typer sees to it)
- torch and the rooms that need it are imported inside a command, so that help answers at once
Checked as a user would run it in tests/test_cli.py.
"""

from __future__ import annotations

import io
import os
import sys

from typer.exceptions import TyperException

from inlayer.cli import walk as _walk  # noqa: F401  # each verb joins the app, in the order help shows them

# isort: split
from inlayer.cli import inspect as _inspect  # noqa: F401
from inlayer.cli import serve as _serve  # noqa: F401
from inlayer.cli import train as _train  # noqa: F401

# isort: split
from inlayer.cli import learn as _learn  # noqa: F401
from inlayer.cli.app import app
from inlayer.errors import InlayerError, needs_torch

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character gets its code instead
            stream.reconfigure(errors="backslashreplace")
    try:
        with needs_torch("this command"):
            code = app(args=sys.argv[1:] or ["--help"], standalone_mode=False) or 0
        sys.stdout.flush()  # here, where a full disk can still be said in one line
    except (InlayerError, TyperException) as error:
        code = _complain(error.format_message() if isinstance(error, TyperException) else str(error))
    except BrokenPipeError:  # the reader of a pipe left early: `inlayer walk | head`
        _drop_output()
        code = 141
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch's words
            raise
        code = _complain("there is not enough memory for that; ask for something smaller")
    except OSError as error:
        _drop_output()
        code = _complain(f"the output cannot be written: {error.strerror}")
    sys.exit(code)


def _complain(message: str) -> int:
    """One line, whatever the message quotes: a path may hold a newline."""
    sys.stderr.write(f"inlayer: {' '.join(message.split())}\n")
    return 2


def _drop_output() -> None:
    """What is still in the buffer has nowhere to go; without this, Python would try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
