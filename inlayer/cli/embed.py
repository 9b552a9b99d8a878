"""`inlayer embed`: texts to vectors, in the terminal or in a file.

- see also: searching the file (cli/search.py)

Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from inlayer.cli.app import INTERRUPTED, ModelOption, command, open_model
from inlayer.cli.inputs import check_argument
from inlayer.cli.output import console, print_json, print_note, print_stderr_note, print_table, short_text
from inlayer.errors import InputError
from inlayer.files import check_path, format_path, join_names, printable, quote
from inlayer.render.numbers import pluralize
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inlayer.checkpoint.model import Model
    from inlayer.encoding.encode import Encoder, EncodeSettings
    from inlayer.encoding.reader import Reader
    from inlayer.encoding.resumable_job import EmbedJob
    from inlayer.encoding.weighting import Weighting

SIF = "sif"
SIF_FILE = ".weighting.safetensors"  # appended to the name of the output
SIF_CHARACTERS = 2**24  # limit for the input used to fit the weights
EXAMPLE_TEXTS = ["I love dogs", "Dogs are my favorite animals", "The meeting starts at seven"]
ROWS_AT_ONCE = 32  # rows embedded at a time, more than are shown
SHOWN_ROWS, SHOWN_VALUES, SHOWN_TEXT, MIN_LABEL = 20, 4, 60, 8
NUMBER = 8  # columns taken by a number and the space before it
COMPARED_ROWS = 8  # number of texts whose similarities fit on a line

Pool = Literal["mean", "first", "last", "max"]


@command(
    "inlayer embed",
    "inlayer embed reviews.csv --field review --out reviews.parquet",
    "inlayer embed book.txt more/ --out book.npy --model wordllama --normalize",
    "inlayer embed reviews.csv --field review --out sif.parquet --weights sif",
    "cat lines.txt | inlayer embed - --out vectors.safetensors",
    "To resume an interrupted run, run the same command again.",
)
def embed(
    inputs: Annotated[list[str] | None, typer.Argument(metavar="[TEXTS | FILES | -]")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite")] = False,
    model: ModelOption = None,
    field: Annotated[str | None, typer.Option()] = None,
    per_file: Annotated[bool, typer.Option("--per-file")] = False,
    pool: Annotated[Pool, typer.Option(metavar="NAME")] = "mean",
    weights: Annotated[str | None, typer.Option(metavar="FILE|sif")] = None,
    normalize: Annotated[bool, typer.Option("--normalize")] = False,
    dim: Annotated[int | None, typer.Option(min=1)] = None,
    dtype: Annotated[str, typer.Option()] = "float32",
    on_error: Annotated[Literal["fail", "skip"], typer.Option(metavar="fail|skip")] = "fail",
    engine: Annotated[Literal["local", "ray"], typer.Option(metavar="local|ray")] = "local",
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Turn texts into vectors: files of any size, in constant memory.

    Options:
        inputs: Texts, files (.jsonl, .csv, .tsv, or text with one text per line, also as .gz and .zst; .parquet),
            folders, patterns, or - for standard input (one text per line; with --field, one JSON object per line).
        out: Write .npy, .safetensors, .parquet, or .jsonl.
        overwrite: Replace an existing output once the new one is complete.
        field: Column or JSON field that contains the texts. Default: text.
        per_file: Treat each text file as one text instead of one text per line.
        pool: How to pool a text's rows: mean, first, last, or max.
        weights: Token weights written by Weighting.save, or sif to fit smooth inverse frequency to the input.
        normalize: Scale each vector to norm 1.
        dim: Keep only this many leading values of each vector.
        dtype: Dtype of the vectors, such as float32, float16, or bfloat16.
        on_error: What to do with a bad record: stop, or report it and continue.
        engine: Run in this process, or on a Ray cluster (.parquet files only).
        as_json: Print every row as JSON; with --out, the number of rows and their width.
    """
    from inlayer.encoding.encode import EncodeSettings
    from inlayer.encoding.reader import Reader
    from inlayer.encoding.source_files import find_sources

    if engine == "ray" and out is None:
        raise InputError("--engine ray requires an output file; specify it with --out")
    texts = [check_argument(text, f"text {number}") for number, text in enumerate(inputs or EXAMPLE_TEXTS, start=1)]
    skipped = 0

    def on_bad_row(location: str, problem: str) -> None:
        nonlocal skipped
        if on_error == "fail":
            raise InputError(f"{location}: {problem}; to skip bad records, use --on-error skip")
        skipped += 1
        sys.stderr.write(f"skipped {printable(f'{location}: {problem}')}\n")

    sources, unknown_files = find_sources(texts) if inputs else ([*texts], [])
    reader = Reader(
        sources, field=field, per_file=per_file, on_bad_row=on_bad_row,
        keep_columns=Path(out or "").suffix in {".parquet", ".jsonl"},
    )  # fmt: skip
    opened = open_model(model)
    encoder = opened.encoder(_fit_sif(opened, reader) if weights == SIF else weights)
    settings = EncodeSettings(pool, normalize, dim, dtype).validated(encoder.width)
    if out is None:
        if as_json:
            _print_json_rows(_embedded(reader, encoder, settings))
        else:
            _print_rows(_embedded(reader, encoder, settings), given=bool(inputs))
        _note_files(unknown_files, reader)
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

        job: EmbedJob = RayJob(*arguments, overwrite=overwrite, skip_bad_rows=on_error == "skip")
    else:
        from inlayer.encoding.resumable_job import EmbedJob

        job = EmbedJob(*arguments, overwrite=overwrite)
    rows = _run_job(job)
    if weights == SIF and encoder.weighting is not None:
        encoder.weighting.save(f"{out}{SIF_FILE}")
    _note_files(unknown_files, reader)
    if len(texts) == 1 and reader.sources == texts != ["-"] and len(texts[0].split()) == 1:  # may be a mistyped folder
        sys.stderr.write(f"{quote(texts[0])} is not a file; it was embedded as text\n")
    files = sum(isinstance(source, Path) for source in reader.sources)
    facts: dict[str, Any] = {
        "out": out, "rows": rows, "width": job.width, "files": files, "skipped": skipped, "empty": reader.empty_texts,
    }  # fmt: skip
    if as_json:
        print_json(facts)
    else:
        console().print(_summary(**facts, dtype=settings.dtype.name))


def _summary(*, out: str, rows: int, width: int, files: int, skipped: int, empty: int, dtype: str) -> str:
    """Describe a written file in one line."""
    details = f" from {files:,} files" * (files > 1) + f", {pluralize(skipped, 'bad record')} skipped" * (skipped > 0)
    details += f", {pluralize(empty, 'empty text')} (all zeros)" * (empty > 0)
    return f"{format_path(out)}: {rows:,} x {width} {dtype}{details}"


def _fit_sif(model: Model, reader: Reader) -> Weighting:
    """Fit smooth inverse frequency to the first texts of the input, without those that the model cannot encode."""
    from inlayer.encoding.resumable_job import tokenize_rows
    from inlayer.encoding.weighting import fit_ids
    from inlayer.ragged import Ragged

    if "-" in reader.sources:
        raise InputError("--weights sif reads the input twice, so it cannot be standard input; save it to a file first")
    id_batches, characters, encoder = list[Ragged](), 0, model.encoder()
    for rows in reader.without_reports():
        id_batches.append(tokenize_rows(encoder, rows, lambda *_: None)[1])
        characters += sum(map(len, rows.texts))
        if characters >= SIF_CHARACTERS:
            break
    return fit_ids(model, id_batches)


def _note_files(unknown_files: list[Path], reader: Reader) -> None:
    """Report files that were skipped because of their suffix, and empty files."""
    if unknown_files:
        files, advice = pluralize(len(unknown_files), "file"), "to read a file as text, name it explicitly"
        print_stderr_note(f"{files} skipped: unknown suffix, such as {format_path(unknown_files[0])}; {advice}")
    if empty := reader.empty_files:
        print_stderr_note(f"{pluralize(len(empty), 'file')} without text: {join_names(empty, in_order=True)}")


def _run_job(job: EmbedJob) -> int:
    try:
        with progress_bar("embedding", "rows") as bar:
            return job.run(lambda rows: bar(job.reader.bytes_read, job.reader.bytes_total or None, rows))
    except KeyboardInterrupt:
        command = shlex.join(["inlayer", *sys.argv[1:]])
        advice = "pass the same standard input to" if "-" in job.reader.sources else "run"
        sys.stderr.write(f"interrupted; to resume, {advice}: {command}\n" if job.parts() else "interrupted\n")
        raise typer.Exit(INTERRUPTED) from None


def _embedded(reader: Reader, encoder: Encoder, settings: EncodeSettings) -> Iterator[tuple[list[str], Any]]:
    """Yield texts and their vectors, a few at a time."""
    from inlayer.encoding.resumable_job import embed_rows

    is_empty = True
    for rows in reader:
        for start in range(0, len(rows.texts), ROWS_AT_ONCE):
            block = rows.slice(start, start + ROWS_AT_ONCE)
            embedded, vectors = embed_rows(encoder, settings, block, reader.on_bad_row)
            is_empty = is_empty and not embedded.texts
            yield embedded.texts, vectors
    if is_empty:
        raise InputError("the input contains no text")


def _print_json_rows(embedded: Iterator[tuple[list[str], Any]]) -> None:
    """Print one line of JSON with all rows, each written as soon as it is computed, so memory does not limit them."""
    before = '{"rows": ['
    for texts, vectors in embedded:
        for text, vector in zip(texts, vectors.astype("float32").tolist(), strict=True):
            sys.stdout.write(before + json.dumps({"text": text, "embedding": vector}, allow_nan=False))
            before = ", "
    sys.stdout.write("]}\n")


def _print_rows(embedded: Iterator[tuple[list[str], Any]], *, given: bool) -> None:
    """Print the first values of the first rows (unless the texts are the examples), and similarities of a few texts."""
    import numpy as np

    texts, parts = list[str](), list[Any]()
    for new_texts, values in embedded:
        texts, parts = texts + new_texts, [*parts, values]
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
    """Print a row of numbers for each text, with text and columns cut to the terminal's width."""
    titles = titles[: _fitting_columns()]
    columns = min(SHOWN_TEXT, max(len(corner), MIN_LABEL, console().width - NUMBER * len(titles)))
    labels = [short_text(text, columns) or "(empty text)" for text in texts]
    rows = zip(labels, values[:, : len(titles)].tolist(), strict=True)
    print_table([corner, *titles], [(label, *(f"{value:.3f}" for value in row)) for label, row in rows])
