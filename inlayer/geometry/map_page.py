"""The map of a table: facts for a page, one HTML page that loads nothing, a labeled picture, or a Parquet file.

projection -> [facts, page, picture, file]
- the facts are coordinates, texts, and how faithful each point is; map_canvas.js draws them
- arrays are base64 of little-endian numbers, so 163,840 points stay a few megabytes; tokens are JSON that cannot end
  its script element
- faithfulness is measured on a sample of rows, smaller for a larger table, because each row costs a pass over the table
- the page of a table with up to MAX_NEIGHBOR_ROWS rows contains the true neighbors of every row. Finding them compares
  every row with every other
Tested in Chromium in tests/browser/test_map.py, the facts in tests/web/test_maps.py, the files in
tests/geometry/test_commands.py.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from inlayer.errors import InlayerError, MissingExtraError
from inlayer.geometry.nearest import nearest_excluding_self, to_float32
from inlayer.geometry.projection import Distortion, Points, TableProjection, cache_folder, measure_distortion, project
from inlayer.geometry.vocabulary import MIN_WORD, Vocabulary
from inlayer.render import Page, read_files, style_sheet
from inlayer.render.glyphs import glyphs_for
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.tables.stored_table import StoredTable

MAX_WORK = 2**33  # rows measured x values of the table: a few seconds
MIN_SAMPLE = 32
MAX_LISTED = 20
MAX_NEIGHBOR_ROWS = 60_000
NEIGHBORS = 10
MIN_COMPLETE = 200  # with as many words that are certainly complete, a picture labels no others
MAX_CANDIDATES = 1000  # words, and parts of words, that a picture tries to label
EXAMPLES = {  # word groups of a picture that should be close together, by color, with their names in the legend
    "#c9600f": ("numbers", "seven five three hundred"),
    "#1f6fb5": ("dates", "Monday Friday Sunday April"),
    "#1d6a40": ("places", "London France Paris China"),
    "#9c2f6a": ("people", "king queen mother father"),
    "#6a4fb3": ("feelings", "love hate want think"),
    "#8a6d00": ("colors", "red blue green black"),
}
KINDS, KIND_COLORS = ("parts of words and other tokens", "words"), ("#7a86ab", "#1d7480")  # as on a page
MAX_LABEL = 22  # columns
MAX_NAME = 40
LABEL_GLYPHS = glyphs_for("utf-8", color=False)
MAP_SCRIPTS = ("visible.js", "map_points.js", "map_labels.js", "map_overlay.js", "map_input.js", "map_canvas.js")
METHODS = {"pca": "Principal components", "tsne": "t-SNE"}


@dataclass(frozen=True, kw_only=True)
class MapFacts:
    """A map of every row. `words` is uint8, the other arrays are float32; all little-endian, in base64."""

    method: str
    complete: bool  # False if a t-SNE was interrupted
    is_improving: bool  # True: a better layout is being computed; request it again later
    points: str  # (V, 2); NaN for zero and non-finite rows
    texts: list[str]
    # (V,) share of the nearest rows that are also neighbors on the map; NaN for rows that were not measured
    neighborhood_preservation: str
    mean_preservation: float
    preservation_k: int  # neighbors considered per row
    trustworthiness: float
    n_omitted: int  # zero and non-finite rows
    omitted_ids: list[int]  # ids of the first of them
    # (V,) uint8: 1 for whole words, 2 if they look truncated, 3 if they are certainly complete; None if no tokenizer
    words: str | None = None


def map_facts(table: StoredTable, vocabulary: Vocabulary, projection: TableProjection) -> MapFacts:
    """Describe a projection; its faithfulness is measured here, unless the projection has it."""
    rows, omitted = table.num_embeddings, projection.omitted_ids
    sample = max(MIN_SAMPLE, MAX_WORK // (rows * table.embedding_dim))
    distortion = projection.distortion or measure_distortion(table, projection.points, sample=sample)
    return MapFacts(
        method=projection.method,
        complete=projection.complete,
        is_improving=False,
        points=encode(projection.points),
        texts=[vocabulary.text(token_id) for token_id in range(rows)],
        neighborhood_preservation=encode(per_row_distortion(rows, distortion)),
        mean_preservation=distortion.mean_preservation,
        preservation_k=distortion.k,
        trustworthiness=distortion.trustworthiness,
        n_omitted=len(omitted),
        omitted_ids=omitted[:MAX_LISTED].tolist(),
        words=encode_words(vocabulary),
    )


def encode_words(vocabulary: Vocabulary) -> str | None:
    """Encode which rows are whole words, as in `MapFacts.words`."""
    if vocabulary.tokenizer is None:
        return None
    return encode(vocabulary.words + vocabulary.truncated + 2 * vocabulary.inflected, "u1")


def per_row_distortion(rows: int, distortion: Distortion | None) -> npt.NDArray[np.float32]:
    """Return the neighborhood preservation of every row; NaN for rows that were not measured."""
    shares = np.full(rows, np.nan, np.float32)
    if distortion is not None:
        shares[distortion.ids] = distortion.neighborhood_preservation
    return shares


def encode(values: npt.NDArray[Any], dtype: str = "<f4") -> str:
    """Encode an array's little-endian bytes in base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


def render_map_page(title: str, facts: MapFacts, neighbors: dict[str, Any]) -> str:
    """Return the page of one map, optionally with the neighbors of all rows."""
    omitted = row_names(
        facts.omitted_ids, facts.n_omitted, lambda row: LABEL_GLYPHS.truncate(facts.texts[row], MAX_NAME)
    )
    advice = "Click a token to see its true neighbors."
    if not neighbors:
        advice = "The table is too large to list the neighbors of every row here: inlayer neighbors --id N finds them."
    preserved = f"{facts.mean_preservation:.0%} of a token's {facts.preservation_k} nearest tokens"
    omitted = f"Not shown (zero or non-finite rows): {omitted}. " if omitted else ""
    about = (
        f"{METHODS[facts.method]}{'' if facts.complete else ' (interrupted)'}. On average, {preserved} are also its "
        f"neighbors on this map; trustworthiness {facts.trustworthiness:.2f}. {omitted}{advice}"
    )
    parts = {"rows": pluralize(len(facts.texts), "row"), "about": escape(about)}
    return build_page("map", "map.css").document(title, asdict(facts) | neighbors, **parts)


def row_names(ids: list[int], total: int, label: Callable[[int], str]) -> str:
    """List the first few rows by id, with the labels of those that have a token."""
    names = (str(row) if (text := label(row)) == f"#{row}" else f"{row} ({text})" for row in ids)
    return ", ".join(names) + ", ..." * (total > len(ids))


def build_page(name: str, *styles: str) -> Page:
    """Return a page of page/ with one or more maps."""
    style = style_sheet() + map_files("map_canvas.css", *styles)
    return Page(map_files(f"{name}.html"), style, '"use strict";\n' + map_files(*MAP_SCRIPTS, f"{name}.js"))


def map_files(*names: str) -> str:
    """Read and join files of page/; MAP_SCRIPTS and map_canvas.css draw a map on any page."""
    return read_files("inlayer.geometry", *(f"page/{name}" for name in names))


def embedded_map(
    table: StoredTable, vocabulary: Callable[[], Vocabulary], *, remote: bool
) -> tuple[TableProjection | None, dict[str, Any]]:
    """Return a table's map for a page in a file, with its projection, or a note that explains why there is none."""
    rows = table.num_embeddings
    if remote or rows > MAX_NEIGHBOR_ROWS:
        reason = "remote; a map would download all of it" if remote else f"too large for this file ({rows:,} rows)"
        return None, {"note": f"No map: the table is {reason}."}
    try:
        projection = project(table, "best", cache=cache_folder())
        return projection, asdict(map_facts(table, vocabulary(), projection))
    except InlayerError as error:  # fewer than three usable rows, or a damaged tokenizer
        return None, {"note": f"No map: {error}."}


def map_picture(title: str, vocabulary: Vocabulary, projection: TableProjection) -> bytes:
    """Draw all points as a PNG, with labels on words that do not overlap and example groups of words in color."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise MissingExtraError("a picture needs matplotlib: pip install 'inlayer[map]'") from error
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = projection.points
    drawn: npt.NDArray[np.bool_] = np.asarray(np.isfinite(points).all(axis=1))
    with mpl.rc_context({"font.family": "sans-serif", "text.parse_math": False}):
        figure = Figure(figsize=(12, 9), dpi=150, layout="constrained", facecolor="#ffffff")
        canvas: Any = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        words = np.zeros(len(points), np.bool_)
        if vocabulary.tokenizer is not None:
            words = vocabulary.words & ~vocabulary.truncated
        size = float(np.clip(6e4 / max(int(drawn.sum()), 1), 0.4, 8))
        for name, kind_color, kind in zip(KINDS, KIND_COLORS, (~words, words), strict=True):
            x, y = points[drawn & kind].T
            axes.scatter(x, y, s=size, c=kind_color, alpha=0.45, linewidths=0, label=name)
        candidates = _candidates(vocabulary, drawn)
        used = {color for _, color in candidates}
        for example_color, (name, _) in EXAMPLES.items():
            if example_color in used:
                axes.scatter([], [], s=size, c=example_color, linewidths=0, label=name)
        if (drawn & words).any():
            figure.legend(
                loc="outside lower left",
                ncols=8,
                columnspacing=1.2,
                handletextpad=0.2,
                frameon=False,
                fontsize=9,
                labelcolor="#3c484c",
                markerscale=3,
            )
        axes.set_title(f"{title}: {METHODS[projection.method]} of {len(points):,} rows", loc="left", color="#1b2326")
        axes.set_axis_off()
        axes.set_aspect("equal", "datalim")
        canvas.draw()
        placed: list[Any] = []
        renderer = canvas.get_renderer()
        for token_id, color in candidates:
            text = LABEL_GLYPHS.truncate(vocabulary.text(token_id).strip(" ") or " ", MAX_LABEL)
            _label(axes, renderer, points[token_id], text, color, placed)
        output = io.BytesIO()
        figure.savefig(output, format="png")
    return output.getvalue()


def _candidates(vocabulary: Vocabulary, drawn: npt.NDArray[np.bool_]) -> list[tuple[int, str | None]]:
    """Return rows to label, most important first: examples in their group's color, words by id, parts of words."""
    if vocabulary.tokenizer is None or not (vocabulary.words & drawn).any():  # no words: every token is a byte
        return [(token_id, None) for token_id in np.flatnonzero(drawn)[:MAX_CANDIDATES].tolist()]
    words = np.flatnonzero(vocabulary.words & drawn).tolist()
    by_text = {vocabulary.text(token_id).strip(" \u2581\u0120"): token_id for token_id in reversed(words)}
    colors = {word: color for color, (_, group) in EXAMPLES.items() for word in group.split()}
    examples = {by_text[word]: color for word, color in colors.items() if word in by_text}
    complete = [token_id for token_id in np.flatnonzero(vocabulary.inflected).tolist() if token_id not in examples]
    long = [
        token_id for token_id in words
        if token_id not in examples and len(vocabulary.text(token_id).strip(" \u2581\u0120")) >= MIN_WORD
    ]  # fmt: skip
    labeled = [token_id for token_id in complete if drawn[token_id]] if len(complete) >= MIN_COMPLETE else long
    parts = [  # where there are no words
        token_id for token_id in np.flatnonzero(drawn & ~vocabulary.words).tolist()
        if len(vocabulary.text(token_id)) > 2 and vocabulary.text(token_id).isalpha()
    ]  # fmt: skip
    return [*examples.items(), *((token_id, None) for token_id in labeled[:MAX_CANDIDATES] + parts[:MAX_CANDIDATES])]


def _label(
    axes: Any, renderer: Any, point: npt.NDArray[np.float32], text: str, color: str | None, placed: list[Any]
) -> None:
    """Draw a label if it overlaps no other: right or left of its point, then above or below."""
    from matplotlib.patheffects import withStroke

    size, weight, point_size, gap = (9.5, "bold", 5, (1.05, 1.15)) if color else (7.5, "normal", 2.5, (1.5, 2.4))
    color = color or "#3c484c"
    for x, y in ((5, 0), (-5, 0), (0, 5), (0, -5)):
        label = axes.annotate(
            text, point, xytext=(x, y), textcoords="offset points", zorder=4, fontsize=size, fontweight=weight,
            ha={5: "left", -5: "right", 0: "center"}[x], va={5: "bottom", -5: "top", 0: "center"}[y], color=color,
            path_effects=[withStroke(linewidth=2.5, foreground="#ffffff", alpha=0.85)],
        )  # fmt: skip
        box = label.get_window_extent(renderer).expanded(*gap)
        inside = axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
        if inside and not any(box.overlaps(other) for other in placed):
            placed.append(label.get_window_extent(renderer))
            axes.plot(*point, "o", color=color, markersize=point_size, zorder=3, markeredgewidth=0)
            return
        label.remove()


def map_parquet(vocabulary: Vocabulary, projection: TableProjection) -> bytes:
    """Return a Parquet file with id, text, x, y, and neighborhood_preservation, which embedding-atlas opens."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("a Parquet file needs pyarrow: pip install 'inlayer[map]'") from error
    rows = len(projection.points)
    columns = {
        "id": np.arange(rows), "text": [vocabulary.text(token_id) for token_id in range(rows)],
        "x": projection.points[:, 0], "y": projection.points[:, 1],
        "neighborhood_preservation": per_row_distortion(rows, projection.distortion),
    }  # fmt: skip
    output = io.BytesIO()
    parquet.write_table(pa.table(columns), output)
    return output.getvalue()


def all_neighbors(table: StoredTable, points: Points, progress: Progress = no_progress) -> dict[str, Any]:
    """Return the nearest rows of every row, -1 for a zero or non-finite row; nothing if the table is too large."""
    rows = table.num_embeddings
    if rows > MAX_NEIGHBOR_ROWS:
        return {}
    ids, cosines = np.full((rows, NEIGHBORS), -1, np.int64), np.zeros((rows, NEIGHBORS), np.float32)
    known = np.flatnonzero(np.isfinite(points).all(axis=1))
    for start in range(0, len(known), 1024):
        batch = known[start : start + 1024]
        near, scores = nearest_excluding_self(table, batch, to_float32(table.rows(batch)), NEIGHBORS)
        found = near.shape[1]
        ids[batch, :found], cosines[batch, :found] = near, np.where(near < 0, 0, scores)
        progress(min(start + 1024, len(known)), len(known))
    return {"near": encode(ids, "<i4"), "cosines": encode(np.minimum(cosines, 1.0)), "k": NEIGHBORS}
