"""`inlayer inspect`: facts and findings about a checkpoint's embedding layer.

The exit code is 0 if the layer is healthy (notes are allowed), 1 if there are warnings or errors, and 2 if the source
cannot be read. A progress bar appears on stderr if that is a terminal.
Tested in tests/inspection/test_command.py.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from inlayer.cli.app import app, console, progress_bar

__all__ = ["inspect"]

INSPECT_EXAMPLES = """Examples:

inlayer inspect

inlayer inspect path/to/model

inlayer inspect path/to/model.safetensors --quick

inlayer inspect minilm --json

Exit code: 0 healthy, 1 warnings or errors found, 2 source cannot be read.
"""


@app.command(epilog=INSPECT_EXAMPLES)
def inspect(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Model folder, .safetensors or .gguf file, hub id (org/name) or sample name. "
            "Default: the bundled sample model."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print facts and findings as JSON.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Read only headers and a sample of the rows; may miss faults.")
    ] = False,
) -> None:
    """Check whether a checkpoint's embedding layer is healthy, without loading the model."""
    from inlayer.checkpoint import load

    model = load(source)  # before further imports, so that an unknown source is reported quickly
    from inlayer.inspection import inspect as inspect_model

    with progress_bar("reading rows") as progress:
        report = inspect_model(model, quick=quick, progress=progress)
    if as_json:
        sys.stdout.write(json.dumps(report.to_dict(), allow_nan=False) + "\n")
    else:
        from inlayer.inspection.terminal import print_report

        print_report(report, console())
    raise typer.Exit(report.exit_code)
