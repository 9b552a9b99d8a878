"""`inlayer walk`: show what happens to a text, in the terminal, as JSON, or as a page.

- the rows come from a model; with --width, --seed, or --tokenizer without --model, they are randomly initialized
- --positions, --theta, --swap, and --pad change the walk; a random table is initialized with its --positions
- inputs are read and checked before torch is imported, so errors are reported immediately
- a page file is written completely or not at all
- see also: reading inputs (cli/inputs.py), the walk (trace/), its output (trace/terminal.py, trace/html.py)
Tested in tests/test_cli.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from inlayer.cli.app import ModelOption, command, open_model, output_file
from inlayer.cli.inputs import check_page_texts, parse_token_pair, read_texts, read_vectors
from inlayer.cli.output import console
from inlayer.errors import InputError, MissingFileError
from inlayer.files import format_path, path_kind, write_output

if TYPE_CHECKING:
    from inlayer.tokenizers import Tokenizer
    from inlayer.trace import Change, Pipeline

DEFAULT_TEXT = "I love dogs"
DEFAULT_DIMS = 8
DEFAULT_TOKENS = 256  # in JSON; in the terminal, MAX_TOKENS and MAX_BATCH_TOKENS of trace/layout.py apply
output_option = partial(typer.Option, rich_help_panel="Output")
experiment_option = partial(typer.Option, rich_help_panel="Experiments")
random_table_option = partial(typer.Option, rich_help_panel="Random table")


@command(
    'inlayer walk "I love dogs"',
    'inlayer walk "I love dogs" "I love cats too" --model path/to/model',
    'inlayer walk "dogs love dogs" --step 8 --dims 4',
    'inlayer walk "I love dogs" --positions none --swap 0,2',
    'inlayer walk "naïve 🙂" --tokenizer bytes --positions rotary --width 16',
    "inlayer walk --file letter.txt --json",
    'inlayer walk "I love dogs" --html walk.html',
)
def walk(
    texts: Annotated[list[str] | None, typer.Argument()] = None,
    file: Annotated[list[str] | None, typer.Option()] = None,
    embeds: Annotated[str | None, typer.Option(metavar="FILE.npy")] = None,
    model: ModelOption = None,
    tokenizer: Annotated[str | None, typer.Option()] = None,
    step: Annotated[int | None, output_option(min=1, max=8)] = None,
    dims: Annotated[int, output_option(min=1, max=65_536)] = DEFAULT_DIMS,
    max_tokens: Annotated[int | None, output_option(min=1, max=65_536)] = None,
    first_token: Annotated[int, output_option(min=0)] = 0,
    first_channel: Annotated[int, output_option(min=0)] = 0,
    as_json: Annotated[bool, output_option("--json")] = False,
    html: Annotated[str | None, output_file(rich_help_panel="Output")] = None,
    web: Annotated[bool, output_option("--web")] = False,
    positions: Annotated[str | None, experiment_option()] = None,
    theta: Annotated[float | None, experiment_option()] = None,
    swap: Annotated[str | None, experiment_option(metavar="I,J")] = None,
    pad: Annotated[int, experiment_option(min=0, max=4096)] = 0,
    width: Annotated[int | None, random_table_option(min=1, max=4096)] = None,
    seed: Annotated[int | None, random_table_option(min=0, max=2**63 - 1)] = None,
) -> None:
    """Show what happens to a text: bytes, pre-tokens, ids, rows, positions, hidden states, and gradients.

    The rows come from a model. If --width or --seed is given, or --tokenizer without --model, they are random.

    Options:
        texts: One or more texts; several form a batch. "-" reads standard input. Default: I love dogs.
        file: Read a text from a UTF-8 file; can be repeated. One trailing newline is removed.
        embeds: Start at step 5 with vectors (T, D) or (B, T, D) instead of a text.
        tokenizer: "words", "bytes", or a path: tokenizer.json, tiktoken.model, tokenizer.model, or a folder. Without
            --model, the table is randomly initialized for it. Default: the model's own.
        step: Show only this step, 1 to 8.
        dims: Number of channels to show per vector.
        max_tokens: Maximum number of tokens to show per text (also used in step 8). Default: 12, 8 in a batch; 256 in
            JSON.
        first_token: Index of the first token to show per text.
        first_channel: Index of the first channel to show per vector.
        as_json: Print the trace as JSON.
        html: Write a self-contained HTML page; "-" writes to standard output.
        web: Serve the page on this machine and print its address.
        positions: Replace the position scheme: "none", "learned", "sinusoidal", or "rotary". Default: the model's own;
            for a random table: learned.
        theta: Base of rotary or sinusoidal positions.
        swap: Swap two tokens of the first text, counting from 0.
        pad: Number of padding tokens to append.
        width: Row width. Default: 8.
        seed: Seed of the random rows. Default: 0.
    """
    outputs = [name for name, is_set in (("--json", as_json), ("--html", html is not None), ("--web", web)) if is_set]
    window = {"--max-tokens": max_tokens, "--first-token": first_token, "--first-channel": first_channel}
    cut = [option for option, value in window.items() if value]
    has_vectors, is_page = embeds is not None, html is not None or web
    random_option = "--seed" if width is None else "--width"
    is_random = width is not None or seed is not None or (tokenizer is not None and model is None)
    for is_wrong, problem in (
        (len(outputs) > 1, f"{' and '.join(outputs)} cannot be combined; choose one"),
        (as_json and step is not None, "--step applies to the terminal and the page; --json always prints every step"),
        (is_page and cut, f"{' and '.join(cut)}: only for the terminal and --json; the page has its own limit"),
        (is_random and model is not None, f"{random_option} is only for a random table; remove it, or remove --model"),
        (has_vectors and (texts or file), "--embeds replaces the text; specify vectors or a text, not both"),
        (has_vectors and is_page, "--embeds applies to the terminal and --json; the page starts with a text"),
        ((width or 0) % 2 and positions == "rotary", f"--width is {width}; rotary positions need an even width"),
        (
            has_vectors and is_random,
            "--embeds requires a model; --tokenizer, --width, and --seed create a random table",
        ),
    ):
        if is_wrong:
            raise InputError(problem)
    swapped = None if swap is None else parse_token_pair(swap)
    vectors = None if embeds is None else read_vectors(embeds)
    walked = [] if has_vectors else read_texts(texts or [], file or []) or [DEFAULT_TEXT]
    settings = {"width": width, "positions": positions, "seed": seed} if is_random else None
    open_pipeline = partial(_open_pipeline, walked, model, tokenizer, settings)
    pipeline = open_pipeline()

    from inlayer.tensors import to_tensor
    from inlayer.trace import Change

    change = Change(positions=None if is_random else positions, theta=theta, swap=swapped, pad=pad)
    if html is not None:
        _write_page(html, pipeline, walked, dims, step, change)
        return
    if web:
        _serve(open_pipeline, walked, dims, step, change)
        return
    trace = pipeline.walk(
        walked or None, inputs_embeds=None if vectors is None else to_tensor(vectors), dims=dims,
        max_tokens=max_tokens or DEFAULT_TOKENS, first_token=first_token, first_channel=first_channel, change=change,
    )  # fmt: skip
    if as_json:
        sys.stdout.write(trace.to_json() + "\n")
        return

    from inlayer.trace.terminal import show

    show(trace, console(), step=step, max_tokens=max_tokens, tokenizer=tokenizer, embeds=embeds)
    _note_separate_words(texts or [])


def _note_separate_words(texts: list[str]) -> None:
    """Note, if output goes to a terminal, that an unquoted text became one text per word."""
    if len(texts) > 1 and sys.stdout.isatty() and all(text.split() == [text] != ["-"] for text in texts):
        sys.stderr.write(f"{len(texts)} texts; quote them to make one\n")


def _open_pipeline(
    texts: list[str], source: str | None, tokenizer: str | None, random_settings: dict[str, Any] | None
) -> Pipeline:
    # Before torch is imported, so that a wrong path is reported immediately.
    model = open_model(source) if random_settings is None else None
    name = "words" if tokenizer is None and model is None else tokenizer
    chosen = None if name is None else _open_tokenizer(name, texts)

    from inlayer.trace import Pipeline

    if model is not None:
        return Pipeline(model, tokenizer=chosen)
    assert chosen is not None
    settings = {name: value for name, value in (random_settings or {}).items() if value is not None}
    return Pipeline.random(texts, chosen, **settings)


def _open_tokenizer(name: str, texts: list[str]) -> Tokenizer:
    from inlayer.tokenizers import ByteTokenizer, WordTokenizer, open_tokenizer

    if not name:
        raise InputError('--tokenizer is empty; specify "words", "bytes", or a path')
    if name == "words":
        return WordTokenizer.from_text("\n".join(texts))
    if name == "bytes":
        return ByteTokenizer()
    if path_kind(Path(name)) == "missing":
        raise MissingFileError(
            f'--tokenizer {format_path(name)}: not found; specify "words", "bytes", a model folder, or a tokenizer file'
        )
    return open_tokenizer(name)


# ---- the page


def _write_page(name: str, pipeline: Pipeline, texts: list[str], dims: int, step: int | None, change: Change) -> None:
    from inlayer.trace.html import export

    page = export(pipeline, texts, dims=dims, step=step or 1, change=change).encode()
    if name == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(page)
        return
    write_output(Path(name).resolve(), page)  # follows a link
    sys.stdout.write(f"wrote {format_path(name)}\n")


def _serve(
    open_pipeline: Callable[[], Pipeline], texts: list[str], dims: int, step: int | None, change: Change
) -> None:
    from inlayer.web import serve

    fields = {"step": step, "dims": None if dims == DEFAULT_DIMS else dims, **vars(change), "pad": change.pad or None}
    if change.swap is not None:
        fields["swap"] = ",".join(map(str, change.swap))
    query: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    query["text"] = check_page_texts(texts)
    serve(partial(_open_titled, open_pipeline), fragment=urlencode(query, doseq=True))


def _open_titled(open_pipeline: Callable[[], Pipeline]) -> dict[str, Pipeline]:
    """Open the model in a worker process of the server, by its title."""
    pipeline = open_pipeline()
    return {pipeline.title: pipeline}
