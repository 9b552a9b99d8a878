"""The Typer app that commands register with, and the options that several commands share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

import inlayer
from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_kind, check_path, format_path, path_kind

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model

Function = TypeVar("Function", bound=Callable[..., None])

app = typer.Typer(
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


def command(*lines: str, group: typer.Typer = app, **settings: Any) -> Callable[[Function], Function]:
    """Register a function as a command. Its help ends with `lines`: examples and remarks.

    The Options section of its docstring describes its options; shared options have their own descriptions.
    """

    def register(function: Function) -> Function:
        text, _, section = (inspect.getdoc(function) or "").partition("\n\nOptions:\n")
        function.__annotations__ = inspect.get_annotations(function, eval_str=True)
        for option, lines_of_option in re.findall(r"^    (\w+): (.+(?:\n     .+)*)", section, flags=re.MULTILINE):
            info = function.__annotations__[option].__metadata__[0]
            assert info.help is None, f"{option} is shared with other commands and has a description"
            info.help = re.sub(r" Default: (.+)\.$", r" \\[default: \1]", " ".join(lines_of_option.split()))
        name = function.__name__.rstrip("_").replace("_", "-")
        group.command(name, help=text, epilog=examples(*lines), **settings)(function)
        return function

    return register


def _check_output(context: typer.Context, param: Any, name: str | None) -> str | None:
    """Check that a file can be written before the work starts; for `walk`, "-" is standard output."""
    if name is None or (name == "-" and context.info_name == "walk"):
        return name
    path, suffixes = check_path(name, f"--{param.name}"), SUFFIXES[param.name]
    check_kind(path, "file", "missing")
    if path.suffix.lower() not in suffixes:
        raise InputError(f"--{param.name} is {format_path(name)}; its suffix must be {' or '.join(suffixes)}")
    if path_kind(folder := path.resolve().parent) != "folder":
        raise MissingFileError(f"{format_path(name)} cannot be written: {format_path(folder)} is not a folder")
    return name


SUFFIXES = {"html": (".html", ".htm"), "png": (".png",), "parquet": (".parquet",)}  # for output files, by option
output_file = partial(typer.Option, metavar="FILE", callback=_check_output)
PROGRAMS = ("inlayer ", "torchrun ", "cat ")
INTERRUPTED = 130  # exit code after Ctrl-C
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
