"""`inlayer embed` and `inlayer search`: texts to vectors in a file, and the nearest rows of such a file.

Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from inlayer.cli.app import (
    Json,
    ModelOption,
    app,
    console,
    examples,
    print_demo_note,
    print_json,
    print_note,
    print_table,
    short_text,
)
from inlayer.cli.inputs import check_argument
from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_path, format_path, printable, quote
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inlayer.checkpoint.model import Model
    from inlayer.encoding.encode import Encoder, EncodeSettings
    from inlayer.encoding.reader import Reader
    from inlayer.encoding.resumable_job import EmbedJob

EXAMPLES = ["I love dogs", "Dogs are my favorite animals", "The meeting starts at seven"]
ROWS_AT_ONCE = 32  # more than are shown
SHOWN_ROWS, SHOWN_VALUES, SHOWN_TEXT, MIN_LABEL = 20, 4, 60, 8
NUMBER = 8  # columns of a number and the space before it
COMPARED_ROWS = 8  # texts whose similarities fit on a line

EMBED_EXAMPLES = examples(
    "inlayer embed",
    "inlayer embed reviews.csv --field review --out reviews.parquet",
    "inlayer embed book.txt more/ --out book.npy --model wordllama --normalize",
    "cat lines.txt | inlayer embed - --out vectors.safetensors",
    "To resume an interrupted run, run the same command again.",
)
SEARCH_EXAMPLES = examples(
    'inlayer search "a pet" --in reviews.parquet -k 5',
    'inlayer search "a pet" --in vectors.npy --model default --pool mean --json',
)

Pool = Literal["mean", "first", "last", "max"]
Weights = Annotated[
    str | None, typer.Option(metavar="FILE", help="Fitted token weights (SIF or whitening), written by Weighting.save.")
]
Dim = Annotated[int | None, typer.Option(min=1, help="Keep only this many leading values of each vector.")]


@app.command(epilog=EMBED_EXAMPLES)
def embed(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXTS | FILES | -]",
            help="Texts, files (.txt, .jsonl, .csv and .tsv, optionally with .gz or .zst; .parquet), folders, "
            "patterns, or - for standard input (one text per line; with --field, one JSON object per line).",
        ),
    ] = None,
    out: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write .npy, .safetensors, .parquet or .jsonl.")
    ] = None,
    model: ModelOption = None,
    field: Annotated[
        str | None, typer.Option(help="Column or JSON field that contains the texts. \\[default: text]")
    ] = None,
    per_file: Annotated[
        bool, typer.Option("--per-file", help="Treat each .txt file as one text instead of one text per line.")
    ] = False,
    pool: Annotated[
        Pool, typer.Option(metavar="NAME", help="How to pool the rows of a text: mean, first, last or max.")
    ] = "mean",
    weights: Weights = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale each vector to norm 1.")] = False,
    dim: Dim = None,
    dtype: Annotated[str, typer.Option(help="Dtype of the vectors, such as float32, float16 or bfloat16.")] = "float32",
    on_error: Annotated[
        Literal["fail", "skip"],
        typer.Option(metavar="fail|skip", help="What to do with a bad record: stop, or report it and continue."),
    ] = "fail",
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option(metavar="local|ray", help="Run in this process, or on a Ray cluster (.parquet files only)."),
    ] = "local",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every row as JSON; with --out, the number of rows and their width.")
    ] = False,
) -> None:
    """Turn texts into vectors: files of any size, in constant memory."""
    from inlayer.checkpoint import load
    from inlayer.encoding.encode import EncodeSettings
    from inlayer.encoding.reader import Reader
    from inlayer.encoding.source_files import find_sources

    if engine == "ray" and out is None:
        raise InputError("--engine ray writes a file; name it with --out")
    texts = [check_argument(text, f"text {number}") for number, text in enumerate(inputs or EXAMPLES, start=1)]
    skipped = 0

    def on_bad_row(where: str, problem: str) -> None:
        nonlocal skipped
        if on_error == "fail":
            raise InputError(f"{where}: {problem}; to skip bad records, use --on-error skip")
        skipped += 1
        sys.stderr.write(f"skipped {printable(f'{where}: {problem}')}\n")

    kind = Path(out or "").suffix
    reader = Reader(
        find_sources(texts) if inputs else [*texts], field=field, per_file=per_file, on_bad_row=on_bad_row,
        keep=kind in {".parquet", ".jsonl"},
    )  # fmt: skip
    opened = load(model)
    encoder = opened.encoder(weights)
    settings = EncodeSettings(pool, normalize, dim, dtype).checked(encoder.width)
    if out is None:
        if as_json:
            _print_json_rows(_embedded(reader, encoder, settings))
        else:
            _print_rows(_embedded(reader, encoder, settings), given=bool(inputs))
        return
    vector_settings = {
        "model": str(model or "default"), "table": [*opened.table.shape], "pool": pool, "weights": weights,
        "normalize": normalize, "dim": dim, "dtype": settings.dtype.name,
        "checksum": encoder.checksum(),
    }  # fmt: skip
    input_settings = {"inputs": texts, "field": field, "per_file": per_file, "engine": engine}
    arguments = (encoder, settings, reader, check_path(out, "--out"), vector_settings, input_settings)
    if engine == "ray":
        from inlayer.encoding.ray_job import RayJob

        rows = _write(RayJob(*arguments, skip_bad_rows=on_error == "skip"))
    else:
        from inlayer.encoding.resumable_job import EmbedJob

        rows = _write(EmbedJob(*arguments))
    if len(texts) == 1 and reader.sources == texts != ["-"] and len(texts[0].split()) == 1:  # perhaps a mistyped folder
        sys.stderr.write(f"{quote(texts[0])} is not a file; it was embedded as text\n")
    files = sum(isinstance(source, Path) for source in reader.sources)
    facts = {"out": out, "rows": rows, "width": settings.dim or encoder.width, "files": files, "skipped": skipped}
    if as_json:
        print_json(facts)
    else:
        also = f", {pluralize(skipped, 'bad record')} skipped" if skipped else ""
        also = f" from {files:,} files{also}" if files > 1 else also
        console().print(f"{format_path(out)}: {rows:,} x {facts['width']} {settings.dtype.name}{also}")


def _write(job: EmbedJob) -> int:
    try:
        with progress_bar("embedding", "rows") as bar:

            def progress(rows: int) -> None:
                if bar is not None:
                    bar(job.reader.bytes_read, job.reader.bytes_total or None, rows)

            return job.run(progress)
    except KeyboardInterrupt:
        command = shlex.join(["inlayer", *sys.argv[1:]])
        how = "pass the same standard input to" if "-" in job.reader.sources else "run"
        sys.stderr.write(f"interrupted; to resume, {how}: {command}\n" if job.parts() else "interrupted\n")
        raise typer.Exit(130) from None


def _embedded(reader: Reader, encoder: Encoder, settings: EncodeSettings) -> Iterator[tuple[list[str], Any]]:
    """Yield texts and their vectors, a few at a time."""
    from inlayer.encoding.resumable_job import embed_rows

    is_empty = True
    for rows in reader:
        for start in range(0, len(rows.texts), ROWS_AT_ONCE):
            some, vectors = embed_rows(encoder, settings, rows.slice(start, start + ROWS_AT_ONCE), reader.on_bad_row)
            is_empty = is_empty and not some.texts
            yield some.texts, vectors
    if is_empty:
        raise InputError("the input has no texts")


def _print_json_rows(embedded: Iterator[tuple[list[str], Any]]) -> None:
    """Print one line of JSON with all rows, written as they are computed, so memory does not limit their number."""
    before = '{"rows": ['
    for texts, vectors in embedded:
        for text, vector in zip(texts, vectors.astype("float32").tolist(), strict=True):
            sys.stdout.write(before + json.dumps({"text": text, "embedding": vector}, allow_nan=False))
            before = ", "
    sys.stdout.write("]}\n")


def _print_rows(embedded: Iterator[tuple[list[str], Any]], *, given: bool) -> None:
    """Print the first values of the first rows (not of the example sentences), and the similarities of a few texts."""
    import numpy as np

    texts, parts = list[str](), list[Any]()
    for some, values in embedded:
        texts, parts = texts + some, [*parts, values]
        if len(texts) > SHOWN_ROWS:
            break
    vectors = np.concatenate(parts)[:SHOWN_ROWS]
    shown_values = min(SHOWN_VALUES, vectors.shape[1], _fitting_columns())
    if given:
        titles = [f"[{index}]" for index in range(shown_values)]
        _print_numbers("", titles, texts[:SHOWN_ROWS], vectors)
        console().print()
    if 2 <= len(vectors) <= COMPARED_ROWS:
        norms = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
        units = vectors / np.where(norms == 0, 1, norms)
        numbers = [str(number) for number in range(1, len(vectors) + 1)]
        names = [f"{number} {text or '(empty text)'}" for number, text in zip(numbers, texts, strict=True)]
        _print_numbers("cosine similarity", numbers, names, units @ units.T)
    if given:
        cut = [f"the first {shown_values} of {vectors.shape[1]} values"] * (shown_values < vectors.shape[1])
        cut += [f"the first {SHOWN_ROWS} texts"] * (len(texts) > SHOWN_ROWS)
        if cut:
            print_note(f"Only {' and '.join(cut)} are shown; --out FILE writes all of them.")
    else:
        print_note(f"Each vector has {vectors.shape[1]} values. To embed the texts of a file:")
        print_note("  inlayer embed FILE --out vectors.parquet")


def _fitting_columns() -> int:
    width: int = console().width
    return max(1, (width - MIN_LABEL) // NUMBER)


def _print_numbers(corner: str, titles: list[str], texts: list[str], values: Any) -> None:
    """Print a row of numbers for each text, which is cut to the width of the terminal; only columns that fit."""
    titles = titles[: _fitting_columns()]
    columns = min(SHOWN_TEXT, max(len(corner), MIN_LABEL, console().width - NUMBER * len(titles)))
    labels = [short_text(text, columns) or "(empty text)" for text in texts]
    rows = zip(labels, values[:, : len(titles)].tolist(), strict=True)
    print_table([corner, *titles], [(label, *(f"{value:.3f}" for value in row)) for label, row in rows])


@app.command(epilog=SEARCH_EXAMPLES)
def search(
    query: Annotated[str, typer.Argument(help="The text to search for.")],
    vectors: Annotated[
        str,
        typer.Option("--in", metavar="FILE", help="Vectors from inlayer embed: .parquet, .safetensors or .npy."),
    ],
    model: Annotated[
        str | None, typer.Option(help="The model that created the vectors. \\[default: the one named in the file]")
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=10_000, help="Number of results to show.")] = 10,
    weights: Weights = None,
    pool: Annotated[
        Pool | None, typer.Option(metavar="NAME", help="As in inlayer embed. \\[default: as in the file, or mean]")
    ] = None,
    as_json: Json = False,
) -> None:
    """Find the embedded texts nearest to a query by cosine similarity (exact search, constant memory)."""
    from inlayer.encoding.outputs import open_vectors
    from inlayer.geometry.nearest import nearest

    if not query.strip():
        raise InputError("the query is empty; specify a text to search for")
    table, vector_settings, origin_of = open_vectors(check_path(vectors, "--in"))
    stored = {name: value for name, value in vector_settings.items() if isinstance(value, str)}
    weights, file = weights or stored.get("weights"), format_path(vectors)
    opened = _open_model_of(file, vector_settings, model or stored.get("model"), weights)
    text = check_argument(query, "the query")
    in_sentence = [] if len(text.split()) > 1 else [opened.vocabulary.as_in_text(text)[0]]  # " dog"
    texts = [text, *in_sentence]
    queries = opened.encode(texts, pool=pool or stored.get("pool", "mean"), weights=weights)
    width, has_width = queries.shape[1], f"{file} has vectors of {table.embedding_dim} values"
    if width < table.embedding_dim:
        advice = "pass the model that created them as --model"
        raise InputError(f"{has_width}, but {opened.source} has {width}; {advice}")
    if width > table.embedding_dim != vector_settings.get("dim"):
        advice = "if another model created them, pass it as --model"
        _note(f"{has_width}, so only that many of the {width} values of {opened.source} are compared; {advice}")
    with progress_bar("searching") as progress:
        ids, scores = nearest(table, queries[:, : table.embedding_dim], k, progress=progress)
    best: dict[int, float] = {}  # the larger cosine of a row
    for row, score in zip(ids.ravel().tolist(), scores.ravel().tolist(), strict=True):
        if row >= 0:
            best[row] = max(score, best.get(row, -1.0))
    order = sorted(best, key=lambda row: (-best[row], row))[:k]
    results = [{"row": row, "score": min(best[row], 1.0), "text": None} | origin_of(row) for row in order]
    if not results:
        raise InputError(f"{file} has no usable vectors: all are zero or not finite")
    if not stored and model is None:
        _note(f"{file} does not record its model; searched with --model default --pool {pool or 'mean'}")
    if as_json:
        print_json({"query": query, "rows": results})
        return
    rows = [(f"{result['score']:.3f}", f"{result['row']:,}", _result_text(result)) for result in results]
    columns = 3 if any(row[2] for row in rows) else 2
    print_table(("cosine", "row", "text")[:columns], [row[:columns] for row in rows], left={2})
    print_demo_note(opened.source, "embed the texts again with")


def _open_model_of(file: str, vector_settings: dict[str, Any], model: str | None, weights: str | None) -> Model:
    """Open the model of a file of vectors, and check it and the weighting against what the file says about them."""
    from inlayer.checkpoint import load

    try:
        opened = load(model)
        encoder = opened.encoder(weights)
    except MissingFileError as error:
        advice = f"; if the model or weights that created {file} were moved, pass --model or --weights"
        raise MissingFileError(f"{error}{advice if vector_settings else ''}") from None
    if vector_settings.get("table") not in (None, [*opened.table.shape]):
        problem = f"{file} was created with model {quote(vector_settings.get('model'))}, but the table of"
        advice = "pass the original model with --model, or embed the texts again"
        raise InputError(f"{problem} {opened.source} has a different size; {advice}")
    if vector_settings.get("checksum") not in (None, encoder.checksum()):
        problem = f"{file} was created with a different version of the model or the weighting"
        _note(f"{problem}, so cosines may be wrong; embed the texts again")
    return opened


def _note(text: str) -> None:
    sys.stderr.write(f"note: {text}\n")


def _result_text(row: dict[str, Any]) -> str:
    """Return the text of a row, shortened, and the file it comes from."""
    text = short_text(str(row["text"] or ""), 2 * SHOWN_TEXT)
    return f"{text}  ({format_path(str(row['file']))})" if "file" in row else text
