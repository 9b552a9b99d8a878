"""`inlayer map`: coordinates for every row of a table, as a page, a picture, or a file.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from inlayer.cli.app import INTERRUPTED, Json, Source, command, open_model, output_file
from inlayer.cli.output import console, print_json, print_note, token_text
from inlayer.files import format_path, write_output
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from inlayer.geometry.projection import Distortion, TableProjection
    from inlayer.geometry.vocabulary import Vocabulary

MAX_NAMED = 8  # number of omitted rows to list


@command(
    "inlayer map",
    "inlayer map --html map.html --png map.png",
    "inlayer map path/to/model --parquet map.parquet --json",
    "Exit code: 130 if stopped with Ctrl-C, even if an unfinished map was written.",
)
def map_(
    source: Source = None,
    method: Annotated[Literal["best", "pca", "tsne"], typer.Option(metavar="NAME")] = "best",
    html: Annotated[str | None, output_file()] = None,
    png: Annotated[str | None, output_file()] = None,
    parquet: Annotated[str | None, output_file()] = None,
    as_json: Json = False,
) -> None:
    """Draw a map of all tokens, and report how faithful it is. Ctrl-C during t-SNE keeps the map computed so far.

    Options:
        method: "pca" takes seconds; "tsne" takes minutes and shows more; "best" uses a cached t-SNE if there is one,
            otherwise PCA.
        html: Write an interactive page. In tables of up to 60,000 rows, all pairs are compared, which takes about half
            a minute for 30,000 rows.
        png: Write a labeled picture.
        parquet: Write a Parquet file to open with `embedding-atlas FILE --text text --x x --y y`.
    """
    try:
        model = open_model(source)
        from inlayer.geometry import map_page
        from inlayer.geometry.projection import measure_distortion

        with progress_bar("computing the map") as progress:
            projection = model.project(method, progress=progress)
    except KeyboardInterrupt:
        sys.stderr.write("stopped before a map was computed\n")
        raise typer.Exit(INTERRUPTED) from None
    measure = partial(measure_distortion, model.table, projection.points)
    with progress_bar("measuring distortion") as progress:  # the result must not depend on the files to write
        distortion = projection.distortion or measure(progress=progress)
        is_small = model.table.num_embeddings <= map_page.MAX_NEIGHBOR_ROWS
        if html is not None and projection.complete and is_small and projection.distortion is None:
            _, ids, preservation, *_ = measure(sample=10**9, progress=progress)  # the page colors every row
            distortion = distortion._replace(ids=ids, neighborhood_preservation=preservation)
    projection = projection._replace(distortion=distortion)
    title = f"Token map of {model.source}"
    if html is not None:
        with progress_bar("finding neighbors") as progress:
            neighbors = map_page.all_neighbors(model.table, projection.points, progress)
        facts = map_page.map_facts(model.table, model.vocabulary, projection)
        write_output(Path(html), map_page.render_map_page(title, facts, neighbors).encode())
    if png is not None:
        write_output(Path(png), map_page.map_picture(title, model.vocabulary, projection))
    if parquet is not None:
        write_output(Path(parquet), map_page.map_parquet(model.vocabulary, projection))
    written = [name for name in (html, png, parquet) if name is not None]
    if as_json:
        values = {
            "source": model.source, "method": projection.method, "complete": projection.complete,
            "rows": len(projection.points), "explained_variance_ratio": projection.explained_variance_ratio,
            "k": distortion.k, "measured_rows": distortion.measured_rows,
            "mean_preservation": distortion.mean_preservation,
            "trustworthiness": distortion.trustworthiness, "omitted_ids": projection.omitted_ids.tolist(),
            "files": written,
            "points": [[x, y] if math.isfinite(x) else None for x, y in projection.points.tolist()],
        }  # fmt: skip
        print_json(values)
    else:
        _print_map(model.vocabulary, projection, distortion, written)
    if not projection.complete:
        raise typer.Exit(INTERRUPTED)


def _print_map(vocabulary: Vocabulary, projection: TableProjection, distortion: Distortion, written: list[str]) -> None:
    from inlayer.geometry.map_page import METHODS, row_names

    ratio = projection.explained_variance_ratio
    spread = "" if ratio is None else f", {ratio:.1%} of the variance"
    partly = "" if projection.complete else " (interrupted: the map so far)"
    omitted = projection.omitted_ids.tolist()
    measured, drawn = distortion.measured_rows, len(projection.points) - len(omitted)
    sampled = f" (measured on {measured:,} of the rows)" if measured < drawn else ""
    named = row_names(omitted[:MAX_NAMED], len(omitted), lambda row: token_text(vocabulary.text(row)))
    lines = [
        f"{METHODS[projection.method]} of {len(projection.points):,} rows{spread}{partly}",
        f"on average, {distortion.mean_preservation:.1%} of a token's {distortion.k} nearest tokens are "
        f"also its neighbors on this map; trustworthiness {distortion.trustworthiness:.3f}{sampled}",
        *(f"{pluralize(len(omitted), 'row')} not shown (zero or non-finite): id {named}" for _ in omitted[:1]),
    ]
    console().print("\n".join(lines))
    sys.stdout.writelines(f"wrote {format_path(name)}\n" for name in written)
    if not written:
        print_note("Add --html FILE for an interactive page, or --png FILE for a picture.")
