"""`inlayer walk`: what happens to your own text, in the terminal, as JSON, as a page.

- the rows are a model's own; with --width or --seed, or with --tokenizer and no --model, they are newborn: random
- --positions, --theta, --swap and --pad change the walk on purpose; a newborn table is born with its --positions
- a page is written whole or not at all
- not here: reading what was given (given.py), the walk (trace/), its looks (trace/terminal/)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from inlayer.cli.app import app, console, stopping_at_once
from inlayer.cli.inputs import opening_texts, read_places, read_texts, read_vectors
from inlayer.errors import InputError, MissingFileError
from inlayer.paths import check_path, shown, what_is_at, wrong_kind
from inlayer.saving import write_whole

if TYPE_CHECKING:
    from inlayer.trace import Change, Pipeline

__all__ = ["walk"]

DEFAULT_TEXT = "I love dogs"
DEFAULT_DIMS = 8
DEFAULT_TOKENS = 256
CHANGES = "To change on purpose"
NEWBORN = "For a newborn table"
OUTPUT = "What comes out"

# Blank lines between: typer joins lines that have none.
WALK_EXAMPLES = """Examples:

inlayer walk "I love dogs"

inlayer walk "I love dogs" "I love cats too" --model path/to/model

inlayer walk "dogs love dogs" --step 8 --dims 4

inlayer walk "I love dogs" --positions none --swap 0,2

inlayer walk "naïve 🙂" --tokenizer bytes --positions rotary --width 16

inlayer walk --file letter.txt --json

inlayer walk "I love dogs" --html walk.html
"""


@app.command(epilog=WALK_EXAMPLES)
def walk(
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            help=f'One or more texts; several make a batch. "-" is standard input. \\[default: {DEFAULT_TEXT}]'
        ),
    ] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(help="A text from a file, in UTF-8; can be given several times. Its last line break is left out."),
    ] = None,
    embeds: Annotated[
        str | None,
        typer.Option(metavar="FILE.npy", help="Vectors (T, D) or (B, T, D) in place of a text: they enter at step 5."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model's folder, .safetensors or .gguf file, hub id or sample. "
            "\\[default: the sample inlayer carries]"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help='"words", "bytes", or a path: tokenizer.json, tiktoken.model, tokenizer.model, or a folder. '
            "\\[default: the model's own; without a model, a newborn table is made for it]"
        ),
    ] = None,
    step: Annotated[int | None, typer.Option(min=1, max=8, help="Show this step only.", rich_help_panel=OUTPUT)] = None,
    dims: Annotated[
        int, typer.Option(min=1, max=65_536, help="How many channels of a vector.", rich_help_panel=OUTPUT)
    ] = DEFAULT_DIMS,
    tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_536,
            help=f"How many tokens of a text are told, and learn in step 8. \\[default: {DEFAULT_TOKENS}]",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the trace as JSON.", rich_help_panel=OUTPUT)] = False,
    html: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help='Write the walk as one page that works from disk; "-" is standard output.',
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    web: Annotated[
        bool,
        typer.Option("--web", help="Serve the page on this machine, and print its address.", rich_help_panel=OUTPUT),
    ] = False,
    positions: Annotated[
        str | None,
        typer.Option(
            help='"none", "learned", "sinusoidal" or "rotary", in place of the model\'s own. '
            "A newborn table is born with them. \\[default: the model's own; newborn: learned]",
            rich_help_panel=CHANGES,
        ),
    ] = None,
    theta: Annotated[
        float | None,
        typer.Option(help="The base of rotary or sinusoidal positions.", rich_help_panel=CHANGES),
    ] = None,
    swap: Annotated[
        str | None,
        typer.Option(metavar="I,J", help="Swap two tokens of the first text, counted from 0.", rich_help_panel=CHANGES),
    ] = None,
    pad: Annotated[
        int, typer.Option(min=0, max=4096, help="Add so many tokens of padding.", rich_help_panel=CHANGES)
    ] = 0,
    width: Annotated[
        int | None, typer.Option(min=1, max=4096, help="Width of a row. \\[default: 8]", rich_help_panel=NEWBORN)
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, max=2**63 - 1, help="Where its random rows come from. \\[default: 0]", rich_help_panel=NEWBORN
        ),
    ] = None,
) -> None:
    """Show what happens to your own text: bytes, pieces, ids, rows, positions, hidden states, and the way back.

    The rows are a model's own. With --width or --seed, or with --tokenizer and no --model, they are newborn: random.
    """
    _check_output(as_json=as_json, html=html, web=web, step=step, tokens=tokens)
    places = None if swap is None else read_places(swap)
    is_newborn = width is not None or seed is not None or (tokenizer is not None and model is None)
    if is_newborn and model is not None:
        said = "--seed" if width is None else "--width"
        raise InputError(f"{said} is for a newborn table, and --model opens one that is not; give one")
    if embeds is not None:
        _check_embeds(texts, file, html=html, web=web, random_pipeline=is_newborn)
        given = []
    else:
        given = read_texts(texts or [], file or []) or [DEFAULT_TEXT]

    from inlayer.trace import Change

    if is_newborn:
        line = _newborn(given, "words" if tokenizer is None else tokenizer, width=width, positions=positions, seed=seed)
        change = Change(theta=theta, swap=places, pad=pad)
    else:
        line = _opened(given, model, tokenizer)
        change = Change(positions=positions, theta=theta, swap=places, pad=pad)
    if html is not None:
        _write_page(html, line, given, dims, step, change)
        return
    if web:
        _serve(line, given, dims, step, change)
        return

    vectors = None if embeds is None else read_vectors(embeds)
    trace = line.walk(
        None if vectors is not None else given,
        inputs_embeds=vectors,
        dims=dims,
        tokens=DEFAULT_TOKENS if tokens is None else tokens,
        change=change,
    )
    if as_json:
        sys.stdout.write(trace.to_json() + "\n")
        return

    from inlayer.trace.terminal import show

    show(trace, console(), step=step, tokens=tokens)


def _check_output(*, as_json: bool, html: str | None, web: bool, step: int | None, tokens: int | None) -> None:
    asked = [name for name, said in (("--json", as_json), ("--html", html is not None), ("--web", web)) if said]
    if len(asked) > 1:
        raise InputError(f"{asked[0]} and {asked[1]} are two ways out; give one")
    if as_json and step is not None:
        raise InputError("--step is for the terminal and the page; --json prints every step")
    if tokens is not None and (html is not None or web):
        raise InputError(f"--tokens is for the terminal and --json; the page of {asked[0]} has its own limit")


def _check_embeds(
    texts: list[str] | None, files: list[str] | None, *, html: str | None, web: bool, random_pipeline: bool
) -> None:
    if texts or files:
        raise InputError("--embeds brings vectors in place of a text; give one of them")
    if html is not None or web:
        raise InputError("--embeds is for the terminal and --json; the page begins with a text")
    if random_pipeline:
        raise InputError("--embeds needs a model; --tokenizer, --width and --seed make a newborn table for texts")


def _opened(texts: list[str], source: str | None, tokenizer: str | None) -> Pipeline:
    from inlayer.checkpoint import load
    from inlayer.cli.serve import last_name
    from inlayer.trace import Pipeline

    model = load(source)
    name = "default" if source is None else last_name(source)
    return Pipeline(model, name=name, tokenizer=None if tokenizer is None else _tokenizer(tokenizer, texts))


def _newborn(texts: list[str], tokenizer: str, **said: Any) -> Pipeline:
    from inlayer.trace import random_pipeline

    return random_pipeline(
        texts,
        _tokenizer(tokenizer, texts),
        **{name: value for name, value in said.items() if value is not None},
    )


def _tokenizer(name: str, texts: list[str]) -> Any:
    """The Tokenizer asked for. Its room is imported here: it needs numpy, which help does not."""
    from inlayer.tokenizers import ByteTokenizer, WordTokenizer, open_tokenizer

    if name == "bytes":
        return ByteTokenizer()
    if name == "words":
        return WordTokenizer.from_text("\n".join(texts))
    if not name:
        raise InputError('the tokenizer has no name; give "words", "bytes" or a path')
    return open_tokenizer(name)


# ---- the page


def _write_page(name: str, line: Pipeline, texts: list[str], dims: int, step: int | None, change: Change) -> None:
    from inlayer.trace.export import export

    path = None if name == "-" else _place_for(name)
    page = export(line, texts, dims=dims, step=step or 1, change=change).encode()
    if path is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(page)
        return
    write_whole(path, page)
    sys.stdout.write(f"{shown(name)} ({len(page):,} bytes)\n")


def _place_for(name: str) -> Path:
    """Where the page will lie, looked at before the work is done: a link's own file, in a folder that is there."""
    path = check_path(name, "--html")
    kind = what_is_at(path)
    if kind not in ("file", "nothing"):
        raise wrong_kind(path, kind)
    path = path.resolve()
    if what_is_at(path.parent) != "folder":
        raise MissingFileError(f"{shown(name)} cannot be written: {shown(path.parent)} is no folder")
    return path


def _serve(line: Pipeline, texts: list[str], dims: int, step: int | None, change: Change) -> None:
    from inlayer.web import serve

    said = [("text", text) for text in opening_texts(texts)]
    said += [
        (name, value)
        for name, value in (
            ("step", "" if step is None else str(step)),
            ("dims", "" if dims == DEFAULT_DIMS else str(dims)),
            ("positions", change.positions or ""),
            ("theta", "" if change.theta is None else repr(change.theta)),
            ("swap", "" if change.swap is None else ",".join(map(str, change.swap))),
            ("pad", str(change.pad) if change.pad else ""),
        )
        if value
    ]
    with stopping_at_once():
        serve({line.title: line}, fragment=urlencode(said))
