"""The report as one page: a single file that loads nothing and runs nothing.

- no script at all; the policy names the one style by its hash and lets images come from inside the file only
- a stranger's words are first shown by the signs of the terminal (blanks, control characters, bytes), then escaped
- the colors are those of the page of a walk (trace/page/base.css), dark where the reader's system is
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from inlayer.render.glyphs import glyphs_for
from inlayer.training.analysis import Neighbor, Word
from inlayer.training.report.facts import Continuation, Report
from inlayer.training.report.words import COLUMNS, DRIFT, LONGEST, drift_cells, facts, mean_row, shortly

__all__ = ["to_html"]

SIGNS = glyphs_for("utf-8", color=True)
LONGEST_NAME = 120  # columns
WIDEST_TOKEN = 40  # columns; the page folds what is wider than its box
MAX_ROWS = 12  # of the metrics
METRICS = {
    "step": "step",
    "tokens": "tokens",
    "loss": "loss",
    "validation_loss": "validation",
    "learning_rate": "learning rate",
    "gradient_norm": "gradient norm",
    "row_norm_mean": "mean row norm",
    "mean_row_ratio": "mean-row ratio",
    "output_share": "output share",
    "logit_std": "logit std",
}
PICTURE = (
    "Four curves over the steps of the run: loss, row norms, mean-row ratio, gradient share of input and output side."
)
MARK = (
    '<svg class="mark" viewBox="0 0 16 16" aria-hidden="true"><rect class="mark-cold" width="7" height="7"/>'
    '<rect class="mark-rest" x="9" width="7" height="7"/><rect class="mark-rest" y="9" width="7" height="7"/>'
    '<rect class="mark-hot" x="9" y="9" width="7" height="7"/></svg>'
)


def to_html(report: Report, metrics: Sequence[Mapping[str, Any]], png: bytes | None) -> str:
    """The whole document; `png` is the picture of the run, where one was drawn."""
    name = escape(SIGNS.fold(report.name, LONGEST_NAME, blank=" "))
    return "\n".join(
        (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_policy()}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{name}: what the table learned</title>\n<style>{_style()}</style>\n</head>\n<body>",
            f'<header class="bar"><p class="brand">{MARK} inlayer</p><p class="muted">a training run</p></header>',
            f"<main>\n<h1><bdi>{name}</bdi></h1>",
            *_summary(report),
            *_picture(png),
            *_neighborhoods(report.learned.words),
            *_drift(report),
            *([] if report.continuation is None else _quote(report.continuation)),
            *_numbers(metrics),
            *_pairs("Model", report.model),
            *_pairs("Settings", report.settings),
            "</main>\n</body>\n</html>\n",
        )
    )


# ---- the parts


def _summary(report: Report) -> Iterator[str]:
    yield '<dl class="facts">'
    for name, said in facts(report):
        yield f"<div><dt>{name}</dt><dd>{_words(said)}</dd></div>"
    yield "</dl>"
    for warning in report.warnings:
        yield f'<p class="warning"><strong>warning</strong> {_words(warning)}</p>'


def _picture(png: bytes | None) -> Iterator[str]:
    yield "<section><h2>The course of the run</h2>"
    if png is None:
        yield "<p class=\"note\">No picture was drawn: it needs <code>pip install 'inlayer[train]'</code>.</p>"
    else:
        data = base64.b64encode(png).decode()
        yield '<div class="scroll" role="region" tabindex="0" aria-label="Curves of the run">'
        yield f'<img src="data:image/png;base64,{data}" alt="{PICTURE}"></div>'
    yield "</section>"


def _neighborhoods(words: Sequence[Word]) -> Iterator[str]:
    if not words:
        return
    yield '<section><h2>Nearest rows, before and after</h2><p class="note">By cosine: 1 points in the same direction.'
    yield 'A row begins random, so its first neighbors mean nothing.</p><div class="words">'
    for word in words:
        times = "once" if word.count == 1 else f"{word.count:,} times"
        yield f'<article><h3>{_token(word.label)} <span class="muted">{times} in the text</span></h3>'
        for name, neighbors in (("before", word.before), ("after", word.after)):
            yield f'<div class="{name}"><h4>{name}</h4>'
            yield "<ol>" + "".join(map(_neighbor, neighbors)) + "</ol>" if neighbors else "<p>nowhere</p>"
            yield "</div>"
        yield "</article>"
    yield "</div></section>"


def _neighbor(one: Neighbor) -> str:
    return f'<li>{_token(one.label)}{_bar(one.cosine)}<span class="number">{one.cosine:.2f}</span></li>'


def _drift(report: Report) -> Iterator[str]:
    learned = report.learned
    yield '<section><h2>How far the rows went</h2><p class="note">Means over rows, by how often their token stands in '
    yield f"the text. {DRIFT}.</p>"
    yield from _table(COLUMNS, (drift_cells(one, "→", "×") for one in learned.drift), name="Drift by frequency")
    yield f'<p class="note">Mean row: {_words(mean_row(learned))}.</p>'
    if learned.broken:
        yield f'<p class="warning"><strong>broken</strong> {learned.broken:,} rows hold NaN or infinity</p>'
    yield "</section>"


def _quote(said: Continuation) -> Iterator[str]:
    yield "<section><h2>A continuation</h2>"
    yield f'<pre><span class="given">{_lines(said.prompt)}</span>{_lines(said.text)}</pre></section>'


def _numbers(metrics: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A few lines of the metrics, evenly apart, the last one among them; those that measured the table first of all."""
    full = [line for line in metrics if "row_norm_mean" in line] or list(metrics)
    if not full:
        return
    places = sorted({round(place * (len(full) - 1) / (MAX_ROWS - 1)) for place in range(MAX_ROWS)})
    lines = [full[place] for place in places]
    names = [name for name in METRICS if any(name in line for line in lines)]
    yield "<section><h2>Numbers</h2>"
    yield from _table(
        [METRICS[name] for name in names],
        ([_value(line.get(name)) for name in names] for line in lines),
        name="Metrics of some steps",
    )
    yield "</section>"


def _pairs(title: str, values: Mapping[str, Any]) -> Iterator[str]:
    if values:
        yield f'<details><summary>{title}</summary><dl class="pairs">'
        for name, value in values.items():
            yield f"<div><dt>{_words(str(name))}</dt><dd>{_words(_value(value))}</dd></div>"
        yield "</dl></details>"


# ---- the forms


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, name: str) -> Iterator[str]:
    """Scrolls in its own box where it is wider than the page."""
    yield f'<div class="scroll" role="region" tabindex="0" aria-label="{name}"><table><thead><tr>'
    yield "".join(f'<th scope="col">{escape(head)}</th>' for head in heads) + "</tr></thead><tbody>"
    for first, *cells in rows:
        beside = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        yield f'<tr><th scope="row">{escape(first)}</th>{beside}</tr>'
    yield "</tbody></table></div>"


def _bar(share: float) -> str:
    width = round(100 * min(1.0, max(0.0, share)), 1)
    return (
        '<svg class="bar-box" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="bar-full" width="{width}" height="6"/></svg>'
    )


def _token(label: str) -> str:
    shown = SIGNS.fold(label, WIDEST_TOKEN) or '""'
    return f'<bdi class="token">{escape(shown)}</bdi>'


def _words(text: str) -> str:
    return escape(SIGNS.safe(text[:LONGEST]).replace("->", SIGNS.arrow))


def _lines(text: str) -> str:
    return "\n".join(escape(SIGNS.safe(line)) for line in text[:LONGEST].split("\n"))


def _value(value: Any) -> str:
    if value is None or value in ("", (), []) or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return shortly(value) if isinstance(value, float) else str(value)


# ---- the ground


@cache
def _style() -> str:
    return "\n" + files("inlayer.training.report").joinpath("report.css").read_text(encoding="utf-8")


@cache
def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
