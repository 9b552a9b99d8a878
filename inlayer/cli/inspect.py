"""`inlayer inspect`: the doctor at the command line.

Exit code 0 for healthy (notes allowed), 1 for findings, 2 where the source cannot be read. The progress bar goes to
stderr, and only if that is a terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from inlayer.cli.app import app, console

__all__ = ["inspect"]

INSPECT_EXAMPLES = """Examples:

inlayer inspect

inlayer inspect path/to/model

inlayer inspect path/to/model.safetensors --quick

inlayer inspect minilm --json

Exit code: 0 healthy, 1 findings, 2 cannot be read.
"""


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A model's folder, a .safetensors or .gguf file, a hub id (org/name) or a sample's name. "
            "Without one, the sample that inlayer carries."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts and findings as JSON.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Read headers and some rows only; may miss faults.")] = False,
) -> None:
    """Is the embedding layer of a checkpoint healthy? Facts and findings, from the files alone."""
    from inlayer.inspection import inspect as examine

    with _progress(wanted=not quick) as progress:
        report = examine(source, quick=quick, progress=progress)
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), allow_nan=False) + "\n")
    else:
        from inlayer.inspection.terminal import show

        show(report, console())
    raise typer.Exit(report.exit_code)


@contextmanager
def _progress(*, wanted: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar that is gone when the work is done; nothing at all where nobody watches."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading rows")
        yield lambda done, total: bar.update(task, completed=done, total=total)
