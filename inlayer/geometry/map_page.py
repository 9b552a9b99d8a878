"""The map of a table: facts for a page, a self-contained HTML page, a labeled picture, or a Parquet file.

projection -> [facts, page, picture, file]
- the facts are coordinates, texts, and the faithfulness of each point; map_canvas.js draws them
- arrays are base64 of little-endian numbers, so 163,840 points stay a few megabytes; tokens are JSON that cannot
  close the script element around it
- faithfulness is measured on a sample of rows, smaller for a larger table, because each row costs a pass over the table
- the page of a table with up to MAX_NEIGHBOR_ROWS rows contains the true neighbors of every row. Finding them compares
  every row with every other
Tested in Chromium in tests/browser/test_map.py; facts are tested in tests/web/test_maps.py, and files in
tests/geometry/test_commands.py.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Callable
from html import escape
from itertools import compress
from typing import Any

import numpy as np
import regex

from inlayer.errors import InlayerError, needs_package
from inlayer.facts_base import Facts
from inlayer.geometry.nearest import nearest_excluding_self, to_float32
from inlayer.geometry.projection import Distortion, Points, TableProjection, cache_folder, measure_distortion, project
from inlayer.geometry.vocabulary import MIN_WORD, WORD, Vocabulary, without_spaces
from inlayer.render import Page, read_files, style_sheet
from inlayer.render.glyphs import glyphs_for
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import Progress, no_progress
from inlayer.shapes import Array, Mask, Vectors
from inlayer.tables.stored_table import StoredTable

MAX_WORK = 2**33  # rows measured x values of the table: a few seconds
MIN_SAMPLE = 32
MAX_LISTED = 20
MAX_NEIGHBOR_ROWS = 60_000
NEIGHBORS = 10
MIN_COMPLETE = 200  # with this many certainly complete words, a picture labels no other tokens
MAX_CANDIDATES = 1000  # words, and parts of words, that a picture tries to label
NO_KIND = "bytes, special tokens, rows without token"
KINDS = ("words", "capitalized words", "parts of words", "numbers and punctuation", "other scripts", NO_KIND)
EXAMPLES = [  # groups of words that should be close together; a picture labels them first
    "seven", "five", "three", "hundred", "Monday", "Friday", "Sunday", "April", "London", "France", "Paris", "China",
    "king", "queen", "mother", "father", "love", "hate", "want", "think", "red", "blue", "green", "black",
]  # fmt: skip
MAX_LABEL = 22  # columns
MAX_NAME = 40
LABEL_GLYPHS = glyphs_for("utf-8", color=False)
MAP_SCRIPTS = ("visible.js", "map_points.js", "map_labels.js", "map_overlay.js", "map_input.js", "map_canvas.js")
METHODS = {"pca": "Principal components", "tsne": "t-SNE"}


class MapFacts(Facts):
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
    omitted_ids: list[int]  # ids of the first few omitted rows
    # (V,) uint8: 1 for whole words, 2 if they look truncated, 3 if they are certainly complete; None if no tokenizer
    words: str | None = None


def map_facts(table: StoredTable, vocabulary: Vocabulary, projection: TableProjection) -> MapFacts:
    """Describe a projection, measuring its faithfulness unless that has been measured already."""
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
    return encode(vocabulary.words.astype(np.uint8) + vocabulary.truncated + 2 * vocabulary.inflected, "u1")


def per_row_distortion(rows: int, distortion: Distortion | None) -> Vectors:
    """Return the neighborhood preservation of every row; NaN for rows that were not measured."""
    shares = np.full(rows, np.nan, np.float32)
    if distortion is not None:
        shares[distortion.ids] = distortion.neighborhood_preservation
    return shares


def encode(values: Array, dtype: str = "<f4") -> str:
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
    return build_page("map", "map.css").document(title, vars(facts) | neighbors, **parts)


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
        return projection, vars(map_facts(table, vocabulary(), projection))
    except InlayerError as error:  # fewer than three usable rows, or a damaged tokenizer
        return None, {"note": f"No map: {error}."}


def token_kinds(vocabulary: Vocabulary) -> list[str]:
    """Return the kind of each row, one of KINDS, by the same rules as labelOrder in page/map_labels.js."""
    if vocabulary.tokenizer is None:
        return [NO_KIND] * vocabulary.rows
    whole = (vocabulary.words & ~vocabulary.truncated).tolist()
    return [_kind(text or "", is_word=is_word) for text, is_word in zip(vocabulary.texts, whole, strict=True)]


def _kind(text: str, *, is_word: bool) -> str:
    text = regex.sub("^[ \u2581\u0120]", "", text)
    if not WORD.fullmatch(text):
        return "numbers and punctuation" if regex.fullmatch(r"[\p{N}\p{P}\p{S}]+", text) else NO_KIND
    if not regex.match(r"\p{Script=Latin}", text):
        return "other scripts"
    if not is_word:
        return "parts of words"
    return "capitalized words" if regex.match(r"\p{Lu}", text) else "words"


def kind_colors() -> dict[str, str]:
    """Return the color of each of KINDS on a page: its style sheet defines NO_KIND first, and the light theme first."""
    colors = re.findall(r"--kind-\d: (#\w+)", map_files("map_canvas.css"))
    return dict(zip((NO_KIND, *KINDS[:-1]), colors, strict=False))


def map_picture(title: str, vocabulary: Vocabulary, projection: TableProjection) -> bytes:
    """Draw all points as a PNG, in the colors of a page, with labels that do not overlap; example words are bold."""
    with needs_package("a picture", "matplotlib", "'inlayer[map]'", "matplotlib"):
        import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = projection.points
    drawn: Mask = np.asarray(np.isfinite(points).all(axis=1))
    kinds, colors = list(compress(token_kinds(vocabulary), drawn)), kind_colors()
    with mpl.rc_context({"font.family": "sans-serif", "text.parse_math": False}):
        figure = Figure(figsize=(12, 9), dpi=150, layout="constrained", facecolor="#ffffff")
        canvas: Any = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        size = float(np.clip(6e4 / max(len(kinds), 1), 0.4, 8))
        x, y = points[drawn].T
        axes.scatter(x, y, s=size, c=[colors[kind] for kind in kinds], alpha=0.8, linewidths=0)
        if len(present := [kind for kind in KINDS if kind in set(kinds)]) > 1:
            for kind in present:
                axes.scatter([], [], s=size, c=colors[kind], linewidths=0, label=kind)
            figure.legend(
                loc="outside lower left", ncols=len(present), columnspacing=1.2, handletextpad=0.2, frameon=False,
                fontsize=9, labelcolor="#3c484c", markerscale=3,
            )  # fmt: skip
        axes.set_title(f"{title}: {METHODS[projection.method]} of {len(points):,} rows", loc="left", color="#1b2326")
        axes.set_axis_off()
        axes.set_aspect("equal", "datalim")
        canvas.draw()
        placed: list[Any] = []
        examples, others = _labeled_rows(vocabulary, drawn)
        for token_id in (*examples, *others):
            text = LABEL_GLYPHS.truncate(without_spaces(vocabulary.text(token_id)) or " ", MAX_LABEL)
            _label(axes, canvas.get_renderer(), points[token_id], text, placed, is_bold=token_id in examples)
        output = io.BytesIO()
        figure.savefig(output, format="png")
    return output.getvalue()


def _labeled_rows(vocabulary: Vocabulary, drawn: Mask) -> tuple[list[int], list[int]]:
    """Return the rows of the example words, and other rows to label: words by id, then parts of words."""
    if vocabulary.tokenizer is None or not (vocabulary.words & drawn).any():  # no words: for example, a byte tokenizer
        return [], np.flatnonzero(drawn)[:MAX_CANDIDATES].tolist()
    words = np.flatnonzero(vocabulary.words & drawn).tolist()
    by_text = {without_spaces(vocabulary.text(token_id)): token_id for token_id in reversed(words)}
    examples = [by_text[word] for word in EXAMPLES if word in by_text]
    labeled = np.flatnonzero(vocabulary.inflected & drawn).tolist()
    if len(labeled) < MIN_COMPLETE:
        labeled = [token_id for token_id in words if len(without_spaces(vocabulary.text(token_id))) >= MIN_WORD]
    parts = [  # where there are no words
        token_id for token_id in np.flatnonzero(drawn & ~vocabulary.words).tolist()
        if len(vocabulary.text(token_id)) > 2 and vocabulary.text(token_id).isalpha()
    ]  # fmt: skip
    others = labeled[:MAX_CANDIDATES] + parts[:MAX_CANDIDATES]
    return examples, [token_id for token_id in others if token_id not in examples]


def _label(axes: Any, renderer: Any, point: Vectors, text: str, placed: list[Any], *, is_bold: bool) -> None:
    """Draw a label unless it overlaps another: right or left of its point, then above or below."""
    from matplotlib.patheffects import withStroke

    size, weight, point_size, gap = (9.5, "bold", 5, (1.05, 1.15)) if is_bold else (7.5, "normal", 2.5, (1.5, 2.4))
    color = "#1b2326" if is_bold else "#3c484c"
    for x, y in ((5, 0), (-5, 0), (0, 5), (0, -5)):
        label = axes.annotate(
            text, point, xytext=(x, y), textcoords="offset points", zorder=4, fontsize=size, fontweight=weight,
            color=color, ha={5: "left", -5: "right", 0: "center"}[x], va={5: "bottom", -5: "top", 0: "center"}[y],
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
    with needs_package("a Parquet file", "pyarrow", "'inlayer[map]'", "pyarrow"):
        import pyarrow as pa
        from pyarrow import parquet
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
    """Return the nearest rows of every row, -1 for a zero or non-finite row; {} if the table is too large."""
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
