"""`inlayer evaluate`: score a table on lists of word pairs and analogies.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from inlayer.cli.app import Json, Source, app, console, examples, open_model, print_json, print_note, print_table
from inlayer.errors import InputError, MissingFileError
from inlayer.files import check_path, format_path
from inlayer.render.progress_bar import progress_bar

MIN_PAIRS = 30

EVALUATE_EXAMPLES = examples(
    "inlayer evaluate --similarity pairs.txt",
    "inlayer evaluate minilm --similarity pairs.txt --analogies questions.txt",
)


@app.command(epilog=EVALUATE_EXAMPLES)
def evaluate(
    source: Source = None,
    similarity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="File with two words and a score per line, or a folder of such files; can be repeated."
        ),
    ] = None,
    analogies: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="File with four words per line, in the format of word2vec's questions-words.txt."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Score a table on word similarity and analogies, and compare it with random and simple baselines."""
    if not similarity and analogies is None:
        raise InputError("specify --similarity FILE or --analogies FILE, or both")
    files = [file for name in similarity or [] for file in _files(name)]
    model = open_model(source)
    from inlayer.geometry.evaluation import score_analogies, score_similarity

    scores = [score_similarity(model.table, model.vocabulary, file) for file in files]
    answers = []
    if analogies is not None:
        with progress_bar("answering") as progress:
            answers = score_analogies(model.table, model.vocabulary, check_path(analogies, "--analogies"), progress)
    if as_json:
        print_json({"similarity": [one._asdict() for one in scores], "analogies": [one._asdict() for one in answers]})
        return
    if scores:
        print_table(
            ("word similarity", "pairs", "coverage", "Spearman", "all pairs", "random rows"),
            [(score.name, f"{score.pairs:,}", f"{score.coverage:.0%}", *_cells(score[3:], ".3f")) for score in scores],
        )
        print_note(
            "Spearman: pairs whose words are single tokens (coverage: their share). All pairs: includes words of "
            "several tokens, using the mean of their rows. Random rows: the same score for a random table."
        )
        if undefined := [score.name for score in scores if score.spearman is None or score.all_pairs is None]:
            print_note(
                f"{', '.join(undefined)}: a correlation is not defined (-) if all cosines are equal, or if the row of "
                "a word is zero or not finite."
            )
        if few := [score.name for score in scores if score.pairs * score.coverage < MIN_PAIRS]:
            print_note(
                f"{', '.join(few)}: fewer than {MIN_PAIRS} pairs of single tokens, too few for a reliable correlation."
            )
    if answers and scores:
        console().print()
    if answers:
        print_table(
            ("analogies", "questions", "covered", "correct", "nearest to C", "inputs not excluded"),
            [(one.name, f"{one.questions:,}", f"{one.covered:,}", *_cells(one[3:], ".1%")) for one in answers],
        )
        print_note(
            "Covered: questions whose four words are single tokens with nonzero, finite rows. Nearest to C: the "
            "answer is the token nearest to the third word, without arithmetic. Inputs not excluded: the three words "
            "of a question count as answers."
        )


def _files(name: str) -> list[Path]:
    path = check_path(name, "--similarity")
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.txt"))
    if not files:
        raise MissingFileError(f"{format_path(path)} has no .txt files")
    return files


def _cells(values: Iterable[float | None], style: str) -> list[str]:
    return ["-" if value is None else format(value, style) for value in values]
