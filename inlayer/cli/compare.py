"""`inlayer compare`: what two checkpoints' tables have in common.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from inlayer.cli.app import Json, app, console, examples, output_file, print_json, print_table, token_text
from inlayer.files import printable, shown, write_output
from inlayer.render.progress_bar import progress_bar

COMPARE_EXAMPLES = examples(
    "inlayer compare default path/to/model",
    "inlayer compare default path/to/model --top 3 --json",
    "inlayer compare default path/to/model --html compare.html",
)


@app.command(epilog=COMPARE_EXAMPLES)
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="Model folder, file, hub id, URL or sample name.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The model to compare A with.")],
    top: Annotated[
        int,
        typer.Option(
            min=0,
            max=100_000,
            help="Number of moved rows to show; in the terminal, also the number of unshared tokens.",
        ),
    ] = 10,
    html: Annotated[str | None, output_file(help="Write a page with both maps side by side.")] = None,
    as_json: Json = False,
) -> None:
    """Compare the tables of two checkpoints: shared tokens, rows that moved, and common neighborhoods."""
    from inlayer.checkpoint import load

    models = load(a), load(b)
    from inlayer.geometry.compare import compare_tables, match_rows

    tables = (models[0].table, models[0].vocabulary), (models[1].table, models[1].vocabulary)
    shared = match_rows(*tables)
    comparison = compare_tables(*tables, top=top, shared=shared)
    rotated = "measured after rotating B onto A (Procrustes), because the two spaces are not aligned"
    space = rotated if comparison.aligned else "compared directly"
    rows = f"{comparison.equal:,} of {comparison.shared:,} equal; median cosine {comparison.median_cosine:.3f}, {space}"
    if html is not None:
        from inlayer.geometry.compare_page import compare_page

        with progress_bar("computing maps") as progress:
            projections = [model.project("best", progress=progress) for model in models]
            if projections[0].method != projections[1].method:
                projections = [model.project("pca", progress=progress) for model in models]
        with progress_bar("finding neighbors") as progress:
            page = compare_page(
                (models[0].source, models[1].source), tables, (projections[0], projections[1]), shared,
                f"Shared tokens: {comparison.shared:,}. Rows: {rows}.", progress,
            )  # fmt: skip
        write_output(Path(html), page.encode())
    if as_json:
        print_json(comparison._asdict() | {"moved": [row._asdict() for row in comparison.moved]})
        return
    from rich.text import Text

    from inlayer.inspection.terminal import print_labeled

    output = console()
    for label, text in (
        ("A", f"{models[0].source}: {models[0].table.num_embeddings:,} x {models[0].table.embedding_dim:,}"),
        ("B", f"{models[1].source}: {models[1].table.num_embeddings:,} x {models[1].table.embedding_dim:,}"),
        (
            "tokens",
            f"{comparison.shared:,} shared, {len(comparison.only_a):,} only in A, {len(comparison.only_b):,} only in B",
        ),
        ("rows", rows),
        (
            "neighborhoods",
            "-"
            if comparison.overlap is None
            else f"on average, {comparison.overlap:.0%} of a token's 10 nearest tokens are the same in both",
        ),
    ):
        print_labeled(output, Text(label, "bold"), Text(printable(text)))
    if html is not None:
        output.print(f"wrote {shown(html)}", soft_wrap=True)
    for label, texts in (("only in A", comparison.only_a), ("only in B", comparison.only_b)):
        if texts:
            more = [f"and {len(texts) - top:,} more"] if len(texts) > top else []
            listed = "  ".join([*(token_text(text) for text in texts[:top]), *more])
            print_labeled(output, Text(label, "bold"), Text(listed))
    if comparison.moved:
        print_table(
            ("moved most", "cosine", "norm in A", "in B"),
            (
                (token_text(row.text), f"{row.cosine:.3f}", f"{row.norm_a:.2f}", f"{row.norm_b:.2f}")
                for row in comparison.moved
            ),
        )
