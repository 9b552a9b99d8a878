"""`inlayer map`: coordinates for every row of a table, as a page, a picture or a file.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated

import typer

from inlayer.cli.app import Json, Source, app, console, examples, output_file, print_json, progress_bar
from inlayer.files import printable, shown, write_output

MAX_NAMED = 8  # rows that are not drawn
MAP_EXAMPLES = examples(
    "inlayer map",
    "inlayer map --html map.html --png map.png",
    "inlayer map path/to/model --parquet map.parquet --json",
)


@app.command("map", epilog=MAP_EXAMPLES)
def map_(
    source: Source = None,
    method: Annotated[
        str,
        typer.Option(
            help='"pca" takes seconds; "tsne" takes minutes and shows more; "best" uses a cached t-SNE if there is '
            "one, otherwise PCA."
        ),
    ] = "best",
    html: Annotated[str | None, output_file(help="Write an interactive page.")] = None,
    png: Annotated[str | None, output_file(help="Write a labeled picture.")] = None,
    parquet: Annotated[
        str | None,
        output_file(help="Write a file for `embedding-atlas FILE --text text --x x --y y`."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw a map of all tokens, and report how faithful it is. Ctrl-C during t-SNE keeps the map so far."""
    from inlayer.checkpoint import load

    model = load(source)
    from inlayer.geometry import map_page
    from inlayer.geometry.distortion import measure_distortion

    with progress_bar(f"computing {method}") as progress:
        try:
            projection = model.project(method, progress=progress)
        except KeyboardInterrupt:
            sys.stderr.write("interrupted before there was a map; nothing was written\n")
            raise typer.Exit(130) from None
    sample = 10**9 if model.table.num_embeddings <= map_page.MAX_NEIGHBOR_ROWS and html else 1000
    with progress_bar("measuring distortion") as progress:
        distortion = measure_distortion(model.table, projection.points, sample=sample, progress=progress)
    title = f"Token map of {model.source}"
    written = []
    if html is not None:
        with progress_bar("finding neighbors") as progress:
            page = map_page.map_page(title, model.table, model.vocabulary, projection, distortion, progress)
        write_output(Path(html), page.encode())
        written.append(html)
    if png is not None:
        write_output(Path(png), map_page.map_picture(title, model.vocabulary, projection))
        written.append(png)
    if parquet is not None:
        data = map_page.map_parquet(model.vocabulary, projection, distortion)
        write_output(Path(parquet), data)
        written.append(parquet)
    holes = [row for row, (x, _) in enumerate(projection.points.tolist()) if not math.isfinite(x)]
    facts = {
        "source": model.source, "method": projection.method, "complete": projection.complete,
        "rows": len(projection.points), "explained": projection.explained, "k": distortion.k,
        "kept": float(distortion.kept.mean()), "trustworthiness": distortion.trustworthiness,
        "holes": holes, "files": written,
    }  # fmt: skip
    if as_json:
        print_json(facts | {"points": [[x, y] if math.isfinite(x) else None for x, y in projection.points.tolist()]})
        return
    explained = projection.explained
    spread = "" if explained is None else f", {explained:.1%} of the variance"
    partly = "" if projection.complete else " (interrupted: the map so far)"
    is_sample = len(distortion.ids) == sample
    sampled = f" (measured on {sample:,} of the rows)" if is_sample else ""
    lines = [
        f"{projection.method} of {facts['rows']:,} rows{spread}{partly}",
        f"{facts['kept']:.1%} of the {distortion.k} nearest tokens stay neighbors on the map; "
        f"trustworthiness {distortion.trustworthiness:.3f}{sampled}",
        *(f"zero or non-finite rows, not drawn: {_named(holes)}" for _ in holes[:1]),
        *(f"wrote {printable(shown(name))}" for name in written),
    ]
    console().print("\n".join(lines))
    if not written:
        console().print("Add --html FILE for an interactive page, or --png FILE for a picture.", style="dim")


def _named(ids: list[int]) -> str:
    return ", ".join(map(str, ids[:MAX_NAMED])) + (", ..." if len(ids) > MAX_NAMED else "")
