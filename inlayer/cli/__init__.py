"""The command line, the top layer of the package.

- invalid input is reported in one line on stderr with exit code 2, never as a traceback; Ctrl-C exits with 130 (Typer)
- the docstring of a command is its help; the section Options describes its options (cli/app.py)
- only the command that runs is imported, and torch only where it is needed, so commands start quickly
Tested in tests/test_cli.py.
"""

from __future__ import annotations

import io
import os
import re
import sys
from importlib import import_module
from typing import Any

from typer.exceptions import TyperException
from typer.main import get_command

from inlayer.cli.app import app
from inlayer.errors import InlayerError, needs_torch

COMMANDS = {  # modules, in the order of --help
    "walk": "walk", "inspect": "inspect", "neighbors": "neighbors", "analogy": "neighbors", "map": "map",
    "compare": "compare", "evaluate": "evaluate", "embed": "embed", "search": "search",
    "serve": "serve", "train": "train", "learn": "learn",
}  # fmt: skip


def main() -> None:
    """Run the command line and exit."""
    if sys.stdout is None:  # `inlayer walk >&-`
        sys.exit(_report("standard output is closed"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # escape characters outside the terminal's encoding
            stream.reconfigure(errors="backslashreplace")
    arguments = sys.argv[1:] or ["--help"]
    # A command registers with the app when it is imported.
    for name in COMMANDS if arguments[0] not in COMMANDS else arguments[:1]:
        import_module(f"inlayer.cli.{COMMANDS[name]}")
    command = get_command(app)
    try:
        with needs_torch("this command"):
            _shorten_help(command, arguments)
            code = command(args=arguments, prog_name="inlayer", standalone_mode=False) or 0
        sys.stdout.flush()  # flush here, so that a full disk is reported in one line
    except (InlayerError, TyperException) as error:
        from inlayer.cli.messages import error_message

        code = _report(error_message(error, arguments, command))
    except (BrokenPipeError, SystemExit) as stopped:  # the reader of a pipe closed it: `inlayer walk | head`
        if isinstance(stopped, SystemExit) and not isinstance(stopped.__context__, BrokenPipeError):
            raise  # Typer also exits if a pipe is closed
        _drop_output()
        code = 141
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):  # torch's message
            raise
        code = _report("out of memory; try a smaller input or model")
    except OSError as error:
        if error.errno is None or error.filename is not None:  # the error is not about standard output
            code = _report(str(error))
        else:
            _drop_output()
            code = _report(f"cannot write the output: {error.strerror}")
    sys.exit(code)


def _shorten_help(command: Any, arguments: list[str]) -> None:
    """Shorten and unify the help of options.

    Numbers are shown as <int>, without their range: with it, long options are cut at 80 columns. A default described
    in a help text is shown in the same place as Typer's defaults.
    """
    if not {"--help", "-h"}.isdisjoint(arguments):
        from typer import rich_utils

        rich_utils.RANGE_STRING = ""
        commands = [command]
        for current in commands:
            commands += getattr(current, "commands", {}).values()
            for param in current.params:
                if default := re.search(r" \\\[default: (.+)\]$", getattr(param, "help", None) or ""):
                    param.help, param.show_default = param.help[: default.start()], default[1]
                    param._get_default_string = lambda text=default[1], **_: text  # Typer would add parentheses
                if param.metavar is None and param.type.name.endswith(" range"):
                    param.metavar = f"<{param.type.name.removesuffix(' range')}>"


def _report(message: str) -> int:
    """Print an error on one line, even if it quotes a path with a newline."""
    sys.stderr.write(f"inlayer: {' '.join(message.split())}\n")
    return 2


def _drop_output() -> None:
    """Discard buffered output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
