"""The verbs of the command line.

Each verb translates its arguments into a library call and prints the answer; what it computes lives in a room.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

import inlayer
from inlayer.errors import InputError

__all__ = ["app"]

app = typer.Typer(
    help="The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"inlayer {inlayer.__version__}")
        raise typer.Exit
    return asked


@app.callback()
def inlayer_(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """The embedding layer of language models: text -> ids -> rows -> positions -> hidden states -> head."""
    del version


MOST_VALUES = 2**28  # of a newborn table: one gigabyte
NARROWEST = 30  # columns

# Blank lines between: typer joins lines that have none.
WALK_EXAMPLES = """Examples:

inlayer walk "I love dogs"

inlayer walk "I love dogs" "I love cats too" --model path/to/model

inlayer walk "naïve 🙂" --tokenizer bytes --positions rotary --width 16 --dims 4

inlayer walk "Hello world" --tokenizer path/to/tokenizer.json --json
"""


@app.command(epilog=WALK_EXAMPLES)
def walk(
    texts: Annotated[
        list[str] | None, typer.Argument(help="One or more texts; several make a batch. [default: I love dogs]")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A model's folder, .safetensors or .gguf file, hub id or sample. [default: the sample inlayer carries]"
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help='"words", "bytes", or a path: tokenizer.json, tiktoken.model, tokenizer.model, or a folder. '
            "[default: the model's own; without a model, a newborn table is made for it]"
        ),
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, max=4096, help="For a newborn table: width of a row. [default: 8]")
    ] = None,
    positions: Annotated[
        str | None,
        typer.Option(help='For a newborn table: "learned", "sinusoidal", "rotary" or "none". [default: learned]'),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, max=2**63 - 1, help="For a newborn table: where its random rows come from. [default: 0]"),
    ] = None,
    dims: Annotated[int, typer.Option(min=1, help="How many channels of a vector to show.")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="Print the trace as JSON.")] = False,
) -> None:
    """Show what happens to your own text: bytes, ids, rows, positions, hidden states.

    The rows are a model's own; with any option for a newborn table they are random, drawn from its seed.
    """
    texts = texts or ["I love dogs"]
    newborn = {"width": width, "positions": positions, "seed": seed}
    said: dict[str, Any] = {name: value for name, value in newborn.items() if value is not None}
    if model is not None and said:
        raise InputError(f"--{next(iter(said))} is for a newborn table, and --model opens one that is not; give one")
    if model is None and (said or tokenizer is not None):
        trace = _walk_newborn(texts, dims, "words" if tokenizer is None else tokenizer, **said)
    else:
        trace = _walk_model(texts, dims, model, tokenizer)
    if as_json:
        sys.stdout.write(json.dumps(trace.to_dict()) + "\n")
        return

    from inlayer.walk import show

    show(trace, console())


def console() -> Any:
    """Where a verb prints for people: never too narrow to read, and a reader who leaves ends it with his own code."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:  # rich would exit with 1, which `inspect` says of findings
            raise BrokenPipeError

    made = Output(highlight=False)
    if made.width < NARROWEST:
        made = Output(highlight=False, width=NARROWEST)
    return made


def _walk_model(texts: list[str], dims: int, source: str | None, tokenizer: str | None) -> Any:
    from inlayer.checkpoint import load
    from inlayer.walk import trace_texts

    model = load(source)
    made = model.tokenizer if tokenizer is None else _tokenizer(tokenizer, texts)
    if made is None:
        raise InputError(
            f"{model.source} has no tokenizer; put tokenizer.json beside its weights, or name one with --tokenizer"
        )
    said = f"{model.source} ({model.note})" if model.note else model.source
    return trace_texts(texts, made, model.embeddings, dims=dims, model=said)


def _walk_newborn(
    texts: list[str],
    dims: int,
    tokenizer: str,
    *,
    width: int = 8,
    positions: str = "learned",
    seed: int = 0,
) -> Any:
    made = _tokenizer(tokenizer, texts)

    from inlayer.layer import Embeddings
    from inlayer.walk import trace_texts

    encoded = made.encode_batch(texts)
    vocabulary = max(
        made.get_vocab_size(), *(int(ids.max()) + 1 for ids in encoded if len(ids)), 0
    )  # it may have holes
    longest = max(1, *(len(ids) for ids in encoded))
    if (vocabulary + 1) * width > MOST_VALUES:
        raise InputError(
            f"a newborn table of {vocabulary + 1:,} x {width:,} is more than this walk fills; "
            f"with this tokenizer, choose a --width of at most {MOST_VALUES // (vocabulary + 1)}"
        )
    layer = Embeddings(
        vocabulary + 1,  # one row past the vocabulary for padding
        width,
        longest,
        positions=positions,
        padding_idx=vocabulary,
        seed=seed,
    )
    return trace_texts(texts, made, layer, dims=dims, model=f"newborn: random rows from seed {seed}")


def _tokenizer(name: str, texts: list[str]) -> Any:
    """The Tokenizer asked for. Its room is imported here: it needs numpy, which help does not."""
    from inlayer.text import ByteTokenizer, WordTokenizer, open_tokenizer

    if name == "bytes":
        return ByteTokenizer()
    if name == "words":
        return WordTokenizer.from_text("\n".join(texts))
    if not name:
        raise InputError('the tokenizer has no name; give "words", "bytes" or a path')
    return open_tokenizer(name)
