"""`inlayer inspect`: facts and findings about a checkpoint's embedding layer.

- exit code: 0 if the layer is healthy (notes are allowed), 1 if there are warnings or errors, 2 if the source cannot be
  read, 130 if it was stopped
- stderr shows a progress bar if it is a terminal, and always an estimate if reading takes a long time
- Ctrl-C stops reading and reports the findings so far; pressing it again ends the program
Tested in tests/inspection/test_command.py.
"""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from inlayer.cli.app import INTERRUPTED, Source, command, open_model, output_file
from inlayer.cli.output import console, print_json
from inlayer.errors import InputError
from inlayer.files import format_path, write_output
from inlayer.render.numbers import format_duration
from inlayer.render.progress_bar import Progress, no_progress, progress_bar, stop_signals

MEASURE_SECONDS = 1.0  # seconds of reading before the remaining time is estimated
LONG_SECONDS = 10.0  # durations above this are announced, in seconds


@command(
    "inlayer inspect",
    "inlayer inspect path/to/model",
    "inlayer inspect path/to/model.safetensors --quick",
    "inlayer inspect minilm --json",
    "inlayer inspect minilm --ids undertrained-tokens",
    "inlayer inspect path/to/model --html report.html",
    "Exit code: 0 healthy, 1 warnings or errors found, 2 source cannot be read, 130 stopped with Ctrl-C.",
)
def inspect(
    source: Source = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
    ids: Annotated[str | None, typer.Option(metavar="FINDING")] = None,
    html: Annotated[str | None, output_file()] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
    strict: Annotated[bool, typer.Option("--strict")] = False,
) -> None:
    """Check whether a checkpoint's embedding layer is healthy, without loading the model.

    Options:
        as_json: Print facts and findings as JSON, with all ids.
        ids: Print only the token ids of one kind of finding, one per line.
        html: Write the report as an HTML page, with a map of the rows.
        quick: Read only headers and a sample of the rows; may miss defects.
        strict: Also exit with 1 if the table is randomly initialized, or if anything was not checked.
    """
    if as_json + (ids is not None) + (html is not None) > 1:
        raise InputError("--json (which includes all ids), --ids, and --html cannot be combined; run the command twice")
    if quick and strict:
        raise InputError("--quick and --strict cannot be combined: --quick does not check every row")
    model = open_model(source)  # before further imports, so an unknown source is reported quickly
    from inlayer.inspection import inspect as inspect_model

    announce = _announcer(*model.table_info.shape)
    with stop_signals() as stopped, nullcontext(no_progress) if quick else progress_bar("reading rows") as bar:

        def progress(done: int, total: int) -> bool:
            bar(done, total)
            announce(done, total)
            return not stopped

        report = inspect_model(model, quick=quick, strict=strict, progress=progress)
    if ids is not None:
        sys.stdout.writelines(f"{token_id}\n" for token_id in report.ids(ids))
    elif html is not None:
        from inlayer.inspection.html import inspect_page

        write_output(Path(html), inspect_page(report, model).encode())
        sys.stdout.write(f"wrote {format_path(html)}\n")
    elif as_json:
        print_json(report.to_dict())
    else:
        from inlayer.inspection.terminal import print_report

        print_report(report, console())
    raise typer.Exit(INTERRUPTED if stopped else report.exit_code)


def _announcer(rows: int, width: int) -> Progress:
    """Return a callback that once, if reading will take long, writes an estimate to stderr."""
    start, first, announced = 0.0, -1, False

    def announce(done: int, total: int) -> None:
        nonlocal start, first, announced
        if first < 0:  # the first call; time before it was spent on the tokenizer
            start, first = time.monotonic(), done
        seconds = time.monotonic() - start
        if announced or done == first or seconds < MEASURE_SECONDS:
            return
        announced = True
        if (remaining := seconds / (done - first) * (total - done)) > LONG_SECONDS:
            time_left = f"{remaining:.0f} s" if remaining < 60 else format_duration(remaining)
            hints = "--quick reads a sample; Ctrl-C stops and shows what was found so far"
            sys.stderr.write(f"reading {rows:,} x {width:,} values takes about {time_left}; {hints}\n")

    return announce
