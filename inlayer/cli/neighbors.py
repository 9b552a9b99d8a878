"""`inlayer neighbors` and `inlayer analogy`: the nearest tokens of a table, and word arithmetic with its baselines.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.app import Json, app, console, print_json, progress_bar
from inlayer.errors import InputError
from inlayer.files import printable

if TYPE_CHECKING:
    from inlayer.geometry.neighbors import Neighbor

MODEL_HELP = "Model folder, .safetensors or .gguf file, hub id or sample name. \\[default: the bundled sample model]"
ModelOption = Annotated[str | None, typer.Option(help=MODEL_HELP)]
Count = Annotated[int, typer.Option("-k", min=1, max=10_000, help="Number of tokens to show.")]
Head = Annotated[bool, typer.Option("--head", help="Search the rows of the head instead of the input table.")]
Words = Annotated[bool, typer.Option("--words", help="Show only whole words.")]
Script = Annotated[str | None, typer.Option(help="Show only tokens in this script, such as Latin or Cyrillic.")]
Special = Annotated[bool, typer.Option("--special", help="Also show special tokens and rows without a token.")]

HEX = re.compile("[0-9a-f]{2}( [0-9a-f]{2})+")

NEIGHBORS_EXAMPLES = """Examples:

inlayer neighbors king

inlayer neighbors "New York" -k 20 --words

inlayer neighbors --id 812 --json
"""

ANALOGY_EXAMPLES = """Examples:

inlayer analogy king - man + woman

inlayer analogy Paris - France + Italy --words
"""


@app.command(epilog=NEIGHBORS_EXAMPLES)
def neighbors(
    query: Annotated[str | None, typer.Argument(help="A word or a text; the mean of its tokens' rows is used.")] = None,
    token_id: Annotated[int | None, typer.Option("--id", min=0, help="A token id instead of a word.")] = None,
    model: ModelOption = None,
    k: Count = 10,
    head: Head = False,
    words: Words = False,
    script: Script = None,
    special: Special = False,
    as_json: Json = False,
) -> None:
    """Find the tokens whose rows point in the direction of a word, a text or a token: exact, over the whole table."""
    from inlayer.checkpoint import load

    if (query is None) == (token_id is None):
        raise InputError("give a word or a text, or --id with a token id, but not both")
    with progress_bar("searching") as progress:
        found = load(model).neighbors(
            query if token_id is None else token_id, k, table="head" if head else "input", words=words, script=script,
            special=special, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json({"query": query if token_id is None else token_id, "neighbors": [one._asdict() for one in found]})
    else:
        print_neighbors({"": found})


@app.command(epilog=ANALOGY_EXAMPLES, context_settings={"ignore_unknown_options": True})
def analogy(
    words: Annotated[list[str], typer.Argument(metavar="A - B + C", help="Three words: A is to B as the answer to C.")],
    model: ModelOption = None,
    k: Count = 5,
    head: Head = False,
    only_words: Words = False,
    as_json: Json = False,
) -> None:
    """Answer an analogy by word arithmetic, and show what the first word alone would have answered."""
    from inlayer.checkpoint import load

    parts = " ".join(words).split()
    if len(parts) != 5 or parts[1] not in {"-", "−", "–"} or parts[3] != "+":
        raise InputError("write an analogy as A - B + C, such as: king - man + woman")
    a, b, c = parts[::2]
    found = load(model).analogy(a, b, c, k=k, table="head" if head else "input", words=only_words)
    if as_json:
        print_json(
            {"words": parts[::2]} | {name: [one._asdict() for one in all_] for name, all_ in found._asdict().items()}
        )
        return
    print_neighbors(
        {
            f"{a} - {b} + {c}": found.answers,
            f"nearest to {a} alone": found.nearest_to_first,
            "arithmetic, inputs not excluded": found.with_inputs,
        }
    )
    if found.answers and found.nearest_to_first and found.answers[0].id == found.nearest_to_first[0].id:
        console().print(f"The first answer is also nearest to {a} alone: the arithmetic added nothing.", style="dim")


def print_neighbors(columns: dict[str, list[Neighbor]]) -> None:
    """Print lists of neighbors side by side, with their cosines."""
    from rich.table import Table

    table = Table(box=None, show_header=any(columns), pad_edge=False, header_style="bold")
    for title in columns:
        table.add_column(printable(title), no_wrap=True)
        table.add_column("", justify="right")
    for index in range(max(map(len, columns.values()), default=0)):
        cells = []
        for found in columns.values():
            here = found[index] if index < len(found) else None
            cells += ["", ""] if here is None else [_shown(here.text), f"{here.score:.3f}"]
        table.add_row(*cells)
    console().print(table if table.rows else "no token passes the filters")


def _shown(text: str) -> Any:
    from rich.text import Text

    if HEX.fullmatch(text):  # bytes that are not whole characters, not a text with spaces
        return Text(text)
    return Text(printable(text.replace("\n", "\\n").replace("\t", "\\t")).replace(" ", "·"))
