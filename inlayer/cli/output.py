"""Printing for commands: JSON, tables, notes, and tokens as text.

Tested in tests/test_cli.py.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Container, Sequence
from typing import Any

MIN_WIDTH = 30  # columns
MAX_TOKEN = 24  # columns


def print_json(value: Any) -> None:
    """Print one line of JSON. Non-finite values are an error."""
    sys.stdout.write(json.dumps(value, allow_nan=False) + "\n")


def console(max_width: int = 2**31, **settings: Any) -> Any:
    """Create the rich console of a command, at least 30 columns wide. `settings` are passed to rich.

    Texts are printed unchanged: paths and tokens may contain [brackets] and :names: that rich would interpret.
    """
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which means findings or a failed check
            raise BrokenPipeError

        def _render_buffer(self, buffer: Any) -> str:  # rich pads table lines, and leaves a space where it wraps
            return re.sub(r" +(?=\n)", "", super()._render_buffer(buffer))

    settings |= {"highlight": False, "markup": False, "emoji": False}
    output = Output(**settings)
    width = min(max(output.width, MIN_WIDTH), max_width)
    return output if width == output.width else Output(width=width, **settings)


def print_note(text: str) -> None:
    """Print a remark below a result."""
    console().print(text, style="dim")


def print_stderr_note(text: str) -> None:
    """Print a note on stderr, where it does not mix with a result that is piped."""
    sys.stderr.write(f"note: {text}\n")


def print_demo_note(source: str, advice: str) -> None:
    """Print a note that the bundled model does not give useful results."""
    if source == "default":
        print_note(f'"default" is for demonstration only. For useful results, {advice} --model wordllama.')


def token_text(text: str) -> str:
    """Return a token as text for the console, with visible spaces and escapes."""
    from inlayer.render.glyphs import with_spaces

    return short_text(with_spaces(text), blank=None)


def short_text(text: str, columns: int = MAX_TOKEN, blank: str | None = " ") -> str:
    """Return a text for one line of the console, escaped and cut to `columns`."""
    from inlayer.render.glyphs import glyphs_for

    return glyphs_for(getattr(sys.stdout, "encoding", None) or "utf-8", color=False).truncate(text, columns, blank)


def print_table(titles: Sequence[str], rows: Sequence[Sequence[str]], left: Container[int] = (0,)) -> None:
    """Print a table. Columns are right-aligned unless their index is in `left`; an empty last column is omitted."""
    from inlayer.render.fitted_table import fitted_table

    output = console()
    if not any(row[-1] for row in rows):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    output.print(fitted_table(titles, rows, output.width, left))
