"""`inlayer compare`: what two checkpoints' tables have in common.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlayer.cli.app import Json, command, open_model, output_file
from inlayer.cli.output import console, print_json, print_table, token_text
from inlayer.facts_base import plain
from inlayer.files import format_path, printable, write_output
from inlayer.render.numbers import format_number
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model
    from inlayer.geometry.compare import ModelComparison


@command(
    "inlayer compare default path/to/model",
    "inlayer compare default path/to/model --top 3 --json",
    "inlayer compare default path/to/model --html compare.html",
)
def compare(
    a: Annotated[str, typer.Argument(metavar="A")],
    b: Annotated[str, typer.Argument(metavar="B")],
    top: Annotated[int, typer.Option(min=0, max=100_000)] = 10,
    html: Annotated[str | None, output_file()] = None,
    as_json: Json = False,
) -> None:
    """Compare the tables of two checkpoints: shared tokens, rows that moved, and overlapping neighborhoods.

    Options:
        a: Model folder, file, hub id, URL, or sample name.
        b: The model to compare A with.
        top: Maximum number of moved and damaged rows to list (and, in the terminal, of tokens in only one model).
        html: Write a page with both maps side by side.
    """
    models = open_model(a), open_model(b)
    from inlayer.geometry.compare import compare_page, compare_tables, match_models

    shared = match_models(*models)
    comparison = compare_tables(shared, top)
    facts = _facts(models, comparison)
    if as_json:
        values = comparison._asdict()
        for name in ("moved", "damaged"):
            values[name] = [row._asdict() for row in values[name]]
        print_json(plain(values))
    else:
        _print_report(facts, comparison, top, [_undertrained(model) if comparison.moved else () for model in models])
    if html is None:
        return
    with progress_bar("computing maps") as progress:
        projections = [model.project("best", progress=progress) for model in models]
        if projections[0].method != projections[1].method:
            projections = [model.project("pca", progress=progress) for model in models]
    with progress_bar("finding neighbors") as progress:
        names = models[0].source, models[1].source
        page = compare_page(names, (projections[0], projections[1]), shared, facts, progress)
    write_output(Path(html), page.encode())
    if not as_json:
        console().print(f"wrote {format_path(html)}", soft_wrap=True)


def _undertrained(model: Model) -> Collection[int]:
    """Return the ids of rows that look undertrained: a low cosine does not mean that their tokens' meaning changed."""
    from inlayer.inspection import inspect

    if model.store.remote:  # reading the table would download it again
        return frozenset()
    with progress_bar("inspecting") as progress:
        return frozenset(inspect(model, progress=progress).ids("undertrained-tokens"))


def _print_report(
    facts: list[tuple[str, str]], comparison: ModelComparison, top: int, undertrained: Sequence[Collection[int]]
) -> None:
    from rich.text import Text

    from inlayer.inspection.terminal import print_labeled

    output = console()
    for label, text in facts:
        print_labeled(output, Text(label, "bold"), Text(printable(text)))
    for label, texts in (("only in A", comparison.only_a), ("only in B", comparison.only_b)):
        if texts:
            more = [f"and {len(texts) - top:,} more"] if len(texts) > top else []
            listed = "  ".join([*(token_text(text) for text in texts[:top]), *more])
            print_labeled(output, Text(label, "bold"), Text(listed))
    if comparison.damaged:
        output.print()
        print_table(
            ("zero or not finite", "norm in A", "norm in B"),
            [(token_text(row.text), _norm(row.norm_a), _norm(row.norm_b)) for row in comparison.damaged],
        )
    if comparison.moved:
        rows = []
        for row in comparison.moved:
            ids = row.id_a, row.id_b
            names = [name for name, row_id, found in zip("AB", ids, undertrained, strict=True) if row_id in found]
            cells = (token_text(row.text), f"{row.cosine:.3f}", _norm(row.norm_a), _norm(row.norm_b))
            rows.append((*cells, f"undertrained in {' and '.join(names)}" if names else ""))
        output.print()
        title = "differ most" if comparison.rotated else "moved most"
        print_table((title, "cosine", "norm in A", "norm in B", ""), rows, left={0, 4})


def _facts(models: tuple[Model, Model], comparison: ModelComparison) -> list[tuple[str, str]]:
    """Return labels and texts for both the terminal and the page."""
    rotated = "measured after rotating B onto A (Procrustes), because the two spaces are not aligned"
    median = (
        "none comparable"
        if math.isnan(comparison.median_cosine)
        else f"median cosine {comparison.median_cosine:.3f}, {rotated if comparison.rotated else 'compared directly'}"
    )
    damaged = f"{comparison.n_damaged:,} zero or not finite in A or B; " if comparison.n_damaged else ""
    overlap = comparison.overlap
    return [
        *((name, f"{model.source}: {' x '.join(f'{size:,}' for size in model.table.shape)}")
          for name, model in zip("AB", models, strict=True)),
        ("tokens",
         "matched by id, because the models have no tokenizer" if comparison.matched_by == "id" else
         f"{comparison.n_shared:,} shared, {len(comparison.only_a):,} only in A, {len(comparison.only_b):,} only in B"),
        ("rows", f"{comparison.n_equal:,} of {comparison.n_shared:,} equal; {damaged}{median}"),
        ("neighbors",
         "-" if overlap is None
         else f"on average, {overlap:.0%} of a token's 10 nearest tokens are the same in both"),
    ]  # fmt: skip


def _norm(norm: float) -> str:
    if not math.isfinite(norm):
        return "NaN" if math.isnan(norm) else "infinite"
    return format_number(norm) if norm else "0"
