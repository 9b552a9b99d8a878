"""The Typer app that commands register with, the console they print to, and JSON output."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Container, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import inlayer
from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_path, format_path, not_a_file, path_kind

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

app = typer.Typer(
    help="The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"inlayer {inlayer.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head."""
    del version


def examples(*lines: str) -> str:
    """Return the end of a help text: example commands, and remarks preceded by a blank line."""
    return "\n".join(("Examples:", *(line if line.startswith(PROGRAMS) else f"\n{line}" for line in lines))) + "\n"


def _check_output(context: typer.Context, param: Any, name: str | None) -> str | None:
    """Check that a file can be written before the work starts; for `walk`, "-" is standard output."""
    if name is None or (name == "-" and context.info_name == "walk"):
        return name
    path, suffixes = check_path(name, f"--{param.name}"), SUFFIXES[param.name]
    if (kind := path_kind(path)) not in ("file", "missing"):
        raise not_a_file(path, kind)
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--{param.name} is {format_path(name)}; its suffix must be {' or '.join(suffixes)}")
    if path_kind(folder := path.resolve().parent) != "folder":
        raise MissingFileError(f"{format_path(name)} cannot be written: {format_path(folder)} is not a folder")
    return name


SUFFIXES = {"html": (".html", ".htm"), "png": (".png",), "parquet": (".parquet",)}  # for output files, by option
output_file = partial(typer.Option, metavar="FILE", callback=_check_output)
PROGRAMS = ("inlayer ", "torchrun ", "cat ")
MIN_WIDTH = 30  # columns
MAX_TOKEN = 24  # columns
SOURCE_HELP = (
    "Model folder, .safetensors, .gguf, or .bin file, hub id, URL, or a sample: default, wordllama, minilm, or "
    "smollm2. \\[default: the bundled sample model]"
)
Source = Annotated[str | None, typer.Argument(help=SOURCE_HELP)]
ModelOption = Annotated[str | None, typer.Option(help=SOURCE_HELP)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def open_model(source: str | None) -> Model:
    """Open the model of a command; by default the bundled sample model."""
    from inlayer.checkpoint import load

    return load("default" if source is None else source)


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

        def _render_buffer(self, buffer: Any) -> str:  # rich pads the lines of tables, and wraps after a space
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
    """Note below a result that the bundled model does not give useful results."""
    if source == "default":
        print_note(f'"default" is for demonstration only. For useful results, {advice} --model wordllama.')


def token_text(text: str) -> str:
    """Return a token as text for the console, with visible spaces and escapes."""
    from inlayer.render.glyphs import with_spaces

    return short_text(with_spaces(text), MAX_TOKEN, blank=None)


def short_text(text: str, columns: int, blank: str | None = " ") -> str:
    """Return a text for one line of the console, escaped and cut to `columns`."""
    from inlayer.render.glyphs import glyphs_for

    return glyphs_for(getattr(sys.stdout, "encoding", None) or "utf-8", color=False).truncate(text, columns, blank)


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], left: Container[int] = (0,)) -> None:
    """Print a table. Columns are right-aligned, except those whose index is in `left`."""
    from inlayer.render.fitted_table import fitted_table

    output = console()
    output.print(fitted_table(titles, rows, output.width, left))
