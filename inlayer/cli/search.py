"""`inlayer search`: the rows of a file of vectors nearest to a query.

Tested in tests/encoding/test_commands.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from inlayer.cli.app import Json, command, open_model
from inlayer.cli.embed import SHOWN_TEXT, SIF, SIF_FILE, Pool
from inlayer.cli.inputs import check_argument
from inlayer.cli.output import print_demo_note, print_json, print_stderr_note, print_table, short_text
from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_path, format_path, quote
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from inlayer.checkpoint.model import Model


@command(
    'inlayer search "a pet" --in reviews.parquet -k 5',
    'inlayer search "a pet" --in vectors.npy --model default --pool mean --json',
)
def search(
    query: Annotated[str, typer.Argument()],
    vectors: Annotated[str, typer.Option("--in", metavar="FILE")],
    model: Annotated[str | None, typer.Option()] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=10_000)] = 10,
    weights: Annotated[str | None, typer.Option(metavar="FILE|sif")] = None,
    pool: Annotated[Pool | None, typer.Option(metavar="NAME")] = None,
    as_json: Json = False,
) -> None:
    """Find the embedded texts nearest to a query by cosine similarity (exact search, constant memory).

    Options:
        query: The text to search for.
        vectors: Vectors from inlayer embed: .parquet, .safetensors, .npy, or .jsonl.
        model: The model that created the vectors. Default: the one named in the file.
        k: Number of results to show.
        weights: Token weights, same as in inlayer embed. Default: those recorded in the file.
        pool: Pooling method, same as in inlayer embed. Default: as recorded in the file, otherwise mean.
    """
    from inlayer.encoding.encode import check_one_vector
    from inlayer.encoding.outputs import open_vectors
    from inlayer.geometry.nearest import nearest

    if not query.strip():
        raise InputError("the query is empty; specify a text to search for")
    table, vector_settings, origin_of = open_vectors(check_path(vectors, "--in"))
    stored = {name: value for name, value in vector_settings.items() if isinstance(value, str)}
    weights, file = weights or stored.get("weights"), format_path(vectors)
    weights = f"{vectors}{SIF_FILE}" if weights == SIF else weights
    opened = _open_model_of(file, vector_settings, model or stored.get("model"), weights)
    text = check_argument(query, "the query")
    in_sentence = [] if len(text.split()) > 1 else [opened.vocabulary.as_in_text(text)[0]]  # " dog"
    texts = [text, *in_sentence]
    chosen: Any = pool or stored.get("pool", "mean")
    check_one_vector(chosen)
    queries = opened.encode(texts, pool=chosen, weights=weights)
    width, has_width = queries.shape[1], f"{file} has vectors of {table.embedding_dim} values"
    if width < table.embedding_dim:
        advice = "pass the model that created them as --model"
        raise InputError(f"{has_width}, but {opened.source} has {width}; {advice}")
    if width > table.embedding_dim != vector_settings.get("dim"):
        advice = "if another model created them, pass it as --model"
        print_stderr_note(
            f"{has_width}, so only that many of the {width} values of {opened.source} are compared; {advice}"
        )
    with progress_bar("searching") as progress:
        ids, scores = nearest(table, queries[:, : table.embedding_dim], k, progress=progress)
    best: dict[int, float] = {}  # the larger of a row's two cosines
    for row, score in zip(ids.ravel().tolist(), scores.ravel().tolist(), strict=True):
        if row >= 0:
            best[row] = max(score, best.get(row, -1.0))
    order = sorted(best, key=lambda row: (-best[row], row))[:k]
    results = [{"row": row, "score": min(best[row], 1.0), "text": None} | origin_of(row) for row in order]
    if not results:
        raise InputError(f"{file} has no usable vectors: all are zero or not finite")
    if not stored and model is None:
        print_stderr_note(f"{file} does not record its model; searched with --model default --pool {pool or 'mean'}")
    if as_json:
        print_json({"query": query, "rows": results})
        return
    rows = [(f"{result['score']:.3f}", f"{result['row']:,}", _result_text(result)) for result in results]
    print_table(("cosine", "row", "text"), rows, left={2})
    print_demo_note(opened.source, "embed the texts again with")


def _open_model_of(file: str, vector_settings: dict[str, Any], model: str | None, weights: str | None) -> Model:
    """Open the model that created a file of vectors, and check it and the weighting against the file's settings."""
    try:
        opened = open_model(model)
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
        print_stderr_note(f"{problem}, so cosines may be wrong; embed the texts again")
    return opened


def _result_text(row: dict[str, Any]) -> str:
    """Return a row's text, shortened, and its source file."""
    text = short_text(str(row["text"] or ""), 2 * SHOWN_TEXT)
    return f"{text}  ({format_path(str(row['file']))})" if "file" in row else text
