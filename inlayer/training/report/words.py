"""What the terminal and the page both say of a report, as words and cells."""

from __future__ import annotations

import math
from collections.abc import Iterator

from inlayer.training.analysis import Drift, Learned
from inlayer.training.report.facts import Report

__all__ = ["COLUMNS", "DRIFT", "LONGEST", "drift_cells", "facts", "mean_row", "shortly"]

LONGEST = 2_000  # characters of a stranger's text
COLUMNS = ("", "rows", "of the text", "cosine", "moved", "length")  # of the drift
DRIFT = "Cosine: of a row before and after; moved: the way it went, in lengths of the row before"


def facts(report: Report) -> Iterator[tuple[str, str]]:
    """The first lines: a name and what there is to say."""
    model = report.model
    said = [str(model["architecture"])] if "architecture" in model else []
    if {"vocab_size", "n_embd"} <= model.keys():
        said.append(f"{model['vocab_size']:,} rows of {model['n_embd']:,}")
    if "n_layer" in model:
        said.append(counted(model["n_layer"], "layer"))
    if "tie" in model:
        said.append("head tied to the table" if model["tie"] else "head of its own")
    if "parameters" in model:
        said.append(f"{model['parameters']:,} parameters")
    if said:
        yield "model", ", ".join(said)
    speed = "" if report.tokens_per_second is None else f", {report.tokens_per_second:,.0f} tokens/s"
    yield (
        "trained",
        f"{counted(report.steps, 'step')}, {counted(report.tokens, 'token')} in {duration(report.seconds)}{speed}",
    )
    for name, losses in (("loss", report.training), ("validation", report.validation)):
        if losses is not None:
            last = "no number" if losses.last is None else f"{losses.last:.3f}"
            best = f"; best {losses.best:.3f} at step {losses.best_step:,}" if losses.best != losses.last else ""
            yield name, last if losses.first == losses.last else f"{losses.first:.3f} -> {last}{best}"
    if report.training is None:
        yield "loss", "no step gave a number"


def drift_cells(drift: Drift, arrow: str, times: str) -> tuple[str, ...]:
    """A line of the table: name, rows, share of the text, cosine, movement, length before and after."""
    return (
        drift.name,
        f"{drift.rows:,}",
        f"{drift.share:.1%}",
        shortly(drift.cosine),
        "-" if drift.movement is None else f"{shortly(drift.movement)}{times}",
        f"{shortly(drift.norm_before)} {arrow} {shortly(drift.norm_after)}",
    )


def mean_row(learned: Learned) -> str:
    before, after = (
        "no number" if ratio is None else f"{ratio:.1%}"
        for ratio in (learned.mean_row_ratio_before, learned.mean_row_ratio_after)
    )
    return f"{before} -> {after} of a row's length: what all rows have in common"


def shortly(value: float | None) -> str:
    """Three digits; a dash for no number."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.2f}" if 0.01 <= abs(value) < 100 or value == 0 else f"{value:.3g}"


def counted(amount: int, thing: str) -> str:
    return f"{amount:,} {thing}" if amount == 1 else f"{amount:,} {thing}s"


def duration(seconds: float) -> str:
    """As a person would say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {rest} s"
