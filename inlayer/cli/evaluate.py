"""`inlayer evaluate`: score a table on lists of word pairs and analogies.

Tested in tests/geometry/test_commands.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from inlayer.cli.app import Json, Source, command, open_model
from inlayer.cli.output import console, print_json, print_note, print_table
from inlayer.errors import MissingFileError
from inlayer.files import check_path, format_path
from inlayer.render.progress_bar import progress_bar

if TYPE_CHECKING:
    from inlayer.geometry.evaluation import SimilarityScore

MIN_PAIRS = 30  # with fewer, a correlation is not shown
SAMPLES = Path(__file__).parent.parent / "samples"


@command(
    "inlayer evaluate",
    "inlayer evaluate --similarity pairs.txt",
    "inlayer evaluate minilm --similarity pairs.txt --analogies questions.txt",
    "A line of pairs.txt: king queen 8.5",
    "A line of questions.txt: man woman king queen",
)
def evaluate(
    source: Source = None,
    similarity: Annotated[list[str] | None, typer.Option(metavar="FILE")] = None,
    analogies: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    as_json: Json = False,
) -> None:
    """Score a table on word similarity and analogies, and compare it with random and simple baselines.

    Without options, this is a smoke test on a few built-in words, not a benchmark.

    Options:
        similarity: File with two words and a score per line, or a folder of such files; can be repeated. Default: a
            small built-in list, if --analogies is not used.
        analogies: File with four words per line, in the format of word2vec's questions-words.txt.
    """
    is_smoke_test = not similarity and analogies is None
    if is_smoke_test:
        similarity, analogies = [str(SAMPLES / "smoke_pairs.txt")], str(SAMPLES / "smoke_analogies.txt")
    files = [file for name in similarity or [] for file in _files(name)]
    model = open_model(source)
    from inlayer.geometry.evaluation import score_analogies, score_similarity

    scores = [score_similarity(model.table, model.vocabulary, file) for file in files]
    answers = []
    if analogies is not None:
        with progress_bar("answering") as progress:
            answers = score_analogies(model.table, model.vocabulary, check_path(analogies, "--analogies"), progress)
    if as_json:
        print_json(
            {"similarity": [score._asdict() for score in scores], "analogies": [score._asdict() for score in answers]}
        )
        return
    if is_smoke_test:
        print_note(
            "A smoke test on a few built-in words, not a benchmark. To score your own list, write two words and a "
            "score per line (king queen 8.5), and pass the file with --similarity."
        )
        console().print()
    if scores:
        _print_similarity(scores)
    if answers and scores:
        console().print()
    if answers:
        print_table(
            ("analogies", "questions", "covered", "correct", "nearest to C", "inputs allowed"),
            [
                (score.name, f"{score.questions:,}", f"{score.n_covered:,}", *_cells(score[3:], ".1%"))
                for score in answers
            ],
        )
        print_note(
            "Covered: questions whose four words are single tokens with nonzero, finite rows. Nearest to C: the "
            "answer is the token nearest to the third word, without arithmetic. Inputs allowed: the three words of "
            "a question are also possible answers."
        )


def _print_similarity(scores: list[SimilarityScore]) -> None:
    rows = []
    for score in scores:
        spearman = score.spearman if _covered(score) >= MIN_PAIRS else None
        others = score[4:] if score.pairs >= MIN_PAIRS else (None, None)
        rows.append((score.name, f"{score.pairs:,}", f"{score.coverage:.0%}", *_cells([spearman, *others], ".3f")))
    print_table(("word similarity", "pairs", "coverage", "Spearman", "all pairs", "random rows"), rows)
    for score in scores:
        if score.pairs < MIN_PAIRS:
            print_note(
                f"{score.name}: {score.pairs} pairs are too few for a reliable correlation (-); at least {MIN_PAIRS} "
                "are needed."
            )
        elif _covered(score) < MIN_PAIRS:
            print_note(
                f"{score.name}: {_covered(score)} of {score.pairs:,} pairs have only single-token words; at least "
                f"{MIN_PAIRS} are needed for Spearman (-)."
            )
    print_note(
        "Spearman: pairs whose words are single tokens (coverage: their share). All pairs: includes words of several "
        "tokens, using the mean of their rows. Random rows: all pairs, scored with a random table."
    )
    if undefined := [score.name for score in scores if _is_undefined(score)]:
        print_note(
            f"{', '.join(undefined)}: a correlation is not defined (-) if all cosines are equal, or if a word's row is "
            "zero or not finite."
        )


def _covered(score: SimilarityScore) -> int:
    """Return the number of pairs whose words are single tokens."""
    return round(score.pairs * score.coverage)


def _is_undefined(score: SimilarityScore) -> bool:
    """Return whether a correlation of at least two pairs is not defined."""
    return score.all_pairs is None or (score.spearman is None and _covered(score) > 1)


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
