"""`inlayer neighbors` and `inlayer analogy`: the nearest tokens of a table, and word arithmetic with its baselines.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

import re
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Annotated

import typer

from inlayer.cli.app import Json, ModelOption, command, open_model
from inlayer.cli.output import console, print_demo_note, print_json, print_note, print_table, short_text, token_text
from inlayer.errors import InputError
from inlayer.files import printable
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.geometry.neighbors import Neighbor
    from inlayer.geometry.vocabulary import Vocabulary

Count = Annotated[int, typer.Option("-k", min=1, max=10_000, help="Number of tokens to show.")]
Head = Annotated[bool, typer.Option("--head", help="Search the rows of the head instead of the input table.")]
WordsOnly = Annotated[bool, typer.Option("--words-only", help="Show only whole words.")]

MAX_PARTS = 12  # number of a word's tokens to list
MAX_QUERY = 40  # columns


@command(
    "inlayer neighbors seven",
    "inlayer neighbors king --model wordllama",
    'inlayer neighbors "New York" -k 20 --words-only',
    "inlayer neighbors --id 812 --json",
)
def neighbors(
    query: Annotated[str | None, typer.Argument()] = None,
    token_id: Annotated[int | None, typer.Option("--id", min=0)] = None,
    model: ModelOption = None,
    k: Count = 10,
    head: Head = False,
    words_only: WordsOnly = False,
    script: Annotated[str | None, typer.Option("--unicode-script", metavar="NAME")] = None,
    include_special: Annotated[bool, typer.Option("--include-special")] = False,
    as_json: Json = False,
) -> None:
    """Find the tokens nearest to a word, text, or token by cosine similarity (exact search).

    Options:
        query: A word or phrase. If it has several tokens, the mean of their rows is used.
        token_id: A token id instead of a word.
        script: Show only tokens in this script, such as Latin or Cyrillic.
        include_special: Also show special tokens and rows without a token.
    """
    wanted = query if token_id is None else token_id
    if wanted is None:
        raise InputError("specify a word or a text, such as seven, or a token id, such as --id 812")
    if query is not None and token_id is not None:
        raise InputError(f"a word and --id {token_id} are given; specify only one of them")
    opened = open_model(model)
    if token_id is not None and token_id >= opened.table.num_embeddings:
        raise InputError(f"--id is {token_id}; it must be in 0..{opened.table.num_embeddings - 1}")
    with progress_bar("searching") as progress:
        nearest = opened.neighbors(
            wanted, k, table="head" if head else "input", words_only=words_only, script=script,
            include_special=include_special, progress=progress,
        )  # fmt: skip
    if as_json:
        print_json({"query": wanted, "neighbors": [neighbor._asdict() for neighbor in nearest]})
        return
    if not nearest:
        console().print(_nothing_found(words_only, script, include_special or not opened.has_tokenizer))
    else:
        query_name = f"id {token_id}" if query is None else short_text(query, MAX_QUERY)
        rows = [(token_text(found.text), str(found.id), f"{found.score:.3f}") for found in nearest]
        print_table((f"nearest to {query_name}", "id", "cosine"), rows)
    _print_token_split(opened.vocabulary, [query] if query is not None else [])
    _print_tie(opened, head)
    if nearest:
        print_demo_note(opened.source, "try")


@command(
    "inlayer analogy king - man + woman",
    "inlayer analogy Paris - France + Italy --words-only",
    context_settings={"ignore_unknown_options": True},
)
def analogy(
    words: Annotated[list[str], typer.Argument(metavar="A - B + C")],
    model: ModelOption = None,
    k: Count = 5,
    head: Head = False,
    words_only: WordsOnly = False,
    as_json: Json = False,
) -> None:
    """Answer an analogy by word arithmetic, and compare it with the nearest neighbors of the first word alone.

    Options:
        words: A is to B as the answer is to C.
    """
    parts = re.split(r"\s+([-−–+])\s+", " ".join(words).strip())
    if len(parts) != 5 or parts[1] == "+" or parts[3] != "+":
        raise InputError("write an analogy as A - B + C, with spaces around - and +: king - man + woman")
    first, second, third = parts[::2]
    opened = open_model(model)
    result = opened.analogy(first, second, third, k=k, table="head" if head else "input", words_only=words_only)
    if as_json:
        found = {name: [neighbor._asdict() for neighbor in neighbors] for name, neighbors in result._asdict().items()}
        print_json({"words": parts[::2]} | found)
        return
    a, b, c = (short_text(word) for word in (first, second, third))
    if any(result):
        _print_side_by_side(dict(zip((f"{a} - {b} + {c}", f"{a} alone", "inputs allowed"), result, strict=True)))
    else:
        console().print(_nothing_found(words_only))
    if result.answers and result.nearest_to_first:
        is_same = result.answers[0].id == result.nearest_to_first[0].id
        same = f"The first answer is also nearest to {a} alone: the arithmetic added nothing."
        changed = f"The arithmetic changed the top answer: the token nearest to {a} alone is different."
        print_note(same if is_same else changed)
    _print_token_split(opened.vocabulary, parts[::2])
    _print_tie(opened, head)
    if any(result):
        print_demo_note(opened.source, "try")


def _print_side_by_side(lists: dict[str, list[Neighbor]]) -> None:
    """Print lists of neighbors with their cosines side by side, or one below another in a narrow terminal."""
    from inlayer.render.fitted_table import natural_width

    columns = {title: [(token_text(one.text), f"{one.score:.3f}") for one in found] for title, found in lists.items()}
    titles = [text for title in columns for text in (title, "cosine")]
    rows = [[*chain(*row)] for row in zip_longest(*columns.values(), fillvalue=("", ""))]
    if natural_width(titles, rows) <= console().width:
        print_table(titles, rows, left=range(0, len(titles), 2))
        return
    for number, (title, column) in enumerate(columns.items()):
        if number:
            console().print()
        print_table((title, "cosine"), column)


def _nothing_found(words_only: bool, script: str | None = None, include_special: bool = False) -> str:
    if filters := ["--words-only"] * words_only + ([] if script is None else [f"--unicode-script {printable(script)}"]):
        return f"no other token matches {' '.join(filters)}"
    if include_special:
        return "no other row is nonzero and finite"
    return (
        "no other token has a row that is nonzero and finite; --include-special adds special tokens and rows without a "
        "token"
    )


def _print_tie(model: Model, head: bool) -> None:
    if head and model.head_name is None:
        print_note("The head is tied to the input table: without --head, the answers are the same.")


def _print_token_split(vocabulary: Vocabulary, words: list[str]) -> None:
    """Note which words have several tokens, because the mean of several rows is less meaningful."""
    for word in words:
        ids = vocabulary.ids_of(word)
        if len(ids) > 1:
            parts = " ".join(token_text(vocabulary.text(token_id)) for token_id in ids[:MAX_PARTS])
            more = " ..." if len(ids) > MAX_PARTS else ""
            split = f"{short_text(word, MAX_QUERY)} is split into {len(ids)} tokens"
            print_note(f"{split}; the mean of their rows was used: {parts}{more}")
