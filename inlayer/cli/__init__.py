"""The command line: the door to the rooms. Nobody imports it.

- a bad input is one line on stderr and exit code 2, never a traceback; Ctrl-C is exit code 130 (typer sees to it)
- torch and the rooms that need it are imported inside a command, so that help answers at once
Checked as a user would run it in tests/test_cli.py.
"""

from __future__ import annotations

import os
import sys

from typer.exceptions import TyperException

from inlayer.cli.verbs import app
from inlayer.errors import InlayerError

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit."""
    try:
        sys.exit(app(args=sys.argv[1:] or ["--help"], standalone_mode=False) or 0)
    except (InlayerError, TyperException) as error:
        # One line, whatever the message quotes: a path may hold a newline, an argument a lone surrogate.
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        sys.stderr.write(f"inlayer: {' '.join(message.split())}\n".encode(errors="backslashreplace").decode())
        sys.exit(2)
    except BrokenPipeError:  # the reader of a pipe left early: `inlayer walk | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
